"""Table of everything that is replaced in MindSpore, each with its original."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

Around = Callable[..., Any]  # called as `around(original, *args, **kwargs)`


class _Place(NamedTuple):
    """One attribute of a module or a class."""

    owner: Any  # the module or class
    name: str  # name of the attribute
    inherited: bool  # true where the owner itself had no such attribute
    original: Any  # the object before it was replaced
    arounds: list[tuple[str, Around]]  # functions called around it, with their groups; empty where it was replaced


_table: dict[tuple[int, str], _Place] = {}


def is_replaced(owner: Any, name: str) -> bool:
    """Returns whether an attribute is replaced now."""
    return (id(owner), name) in _table


def replace(owner: Any, name: str, new: Any) -> None:
    """Replaces an attribute by `new`; a second call does nothing."""
    if not is_replaced(owner, name):
        _note(owner, name)
        setattr(owner, name, new)


def wrap(owner: Any, name: str, around: Around, group: str) -> None:
    """Calls `around` in place of a function, with the function before its arguments.

    All functions around one function share one wrapper; the last added is called first.

    Args:
        owner: A module or a class.
        name: Name of a function or method.
        around: Called as `around(original, *args, **kwargs)`; adding it a second time does nothing.
        group: Group of the caller, see `put_back`.
    """
    place = _table.get((id(owner), name))
    if place is None:
        place = _note(owner, name)
        setattr(owner, name, _wrapper(place.original, place.arounds))
    if (group, around) not in place.arounds:
        place.arounds.append((group, around))


def put_back(group: str = "") -> None:
    """Restores the originals, the newest first.

    Args:
        group: Restores only functions of this group; everything if empty.
    """
    for key, place in reversed(_table.copy().items()):
        rest = [each for each in place.arounds if each[0] != group]
        if group and (rest or not place.arounds):
            place.arounds[:] = rest
            continue
        del _table[key]
        if place.inherited:
            delattr(place.owner, place.name)
        else:
            setattr(place.owner, place.name, place.original)


def _note(owner: Any, name: str) -> _Place:
    inherited = isinstance(owner, type) and name not in vars(owner)
    original = getattr(owner, name) if inherited or not isinstance(owner, type) else vars(owner)[name]
    place = _table[id(owner), name] = _Place(owner, name, inherited, original, [])
    return place


def _wrapper(original: Callable[..., Any], arounds: list[tuple[str, Around]]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = original
        for _, around in arounds:
            call = functools.partial(around, call)
        return call(*args, **kwargs)

    return wrapper

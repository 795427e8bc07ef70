"""What a step can reach: its cells, and Parameters, schedules and iterators that these or its function know by name."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from mindspore import Parameter, nn
from mindspore.experimental.optim.lr_scheduler import LRScheduler

from asd.operators.private.class_swap import stock_class

__all__ = ["Held", "held_by", "is_iterator", "is_users", "reached_from"]

_NOT_THE_USERS = {"asd", "builtins", "mindspore", "numpy", "logging", "threading", "weakref", "io", "re", "tqdm"}
_DEEPEST = 6
_MOST_ELEMENTS = 10_000
"""Of a list that is searched; longer ones are data."""
_EMPTY = types.CellType()


class Held(NamedTuple):
    """What is reached, each once."""

    cells: list[nn.Cell]
    parameters: list[Parameter]
    schedules: list[LRScheduler]
    iterators: list[Iterator[Any]]


def held_by(roots: Iterable[Any]) -> Held:
    """All that cells and functions reach, through lists and objects in attributes of the user's cells as well."""
    held, seen, todo = Held([], [], [], []), dict[int, Any](), deque(roots)
    while todo:
        root = todo.popleft()
        for each in reached_from(root):
            if id(each) in seen:
                continue
            seen[id(each)] = each
            if isinstance(each, nn.Cell):
                held.cells.append(each)
                todo.extend(each.cells())
                held.parameters.extend(each.get_parameters(expand=False))
                if is_users(stock_class(each)):
                    todo.extend(vars(each).values())
            elif isinstance(each, Parameter):
                held.parameters.append(each)
            else:
                (held.schedules if isinstance(each, LRScheduler) else held.iterators).append(each)
    return held


def is_users(kind: type) -> bool:
    """Whether a class is the user's own, or of a library that knows nothing of trainings."""
    return str(kind.__module__).partition(".")[0] not in _NOT_THE_USERS


def is_iterator(value: Any) -> bool:
    """Whether reading on in it changes it for good; a file that is written to is no such thing."""
    return isinstance(value, Iterator) and not isinstance(value, (io.IOBase, *weakref.ProxyTypes))


def reached_from(root: Any) -> Iterator[Any]:
    """What an object knows by name: of a function that is its closure, globals and defaults.

    Yields:
        Cells, Parameters, schedules of learning rates, and iterators.
    """
    todo, seen = deque([(root, _DEEPEST)]), dict[int, Any]()
    while todo:
        value, depth = todo.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        with contextlib.suppress(Exception):  # foreign objects need not let anybody look into them
            if isinstance(value, (nn.Cell, Parameter, LRScheduler)) or is_iterator(value):
                yield value
            elif depth > 0:
                todo.extend((each, depth - 1) for each in _named_in(value))


def _named_in(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple, dict, deque)):
        elements = list(value.values() if isinstance(value, dict) else value)
        return elements if len(elements) <= _MOST_ELEMENTS else ()
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if inspect.ismethod(value):
        return value.__self__, value.__func__
    if hasattr(value, "__dict__") and not isinstance(value, type) and is_users(type(value)):
        of_class = [each for each in vars(type(value)).values() if isinstance(each, (Parameter, nn.Cell, list, dict))]
        return *vars(value).values(), *of_class, *((type(value).__call__,) if callable(value) else ())
    function = inspect.unwrap(value) if callable(value) else None
    if not inspect.isfunction(function) or str(function.__module__).partition(".")[0] in ("asd", "numpy"):
        return ()
    closure = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    known = function.__globals__
    foreign = str(function.__module__).partition(".")[0] == "mindspore"  # of it only what it was given
    named = [] if foreign else [known[name] for name in _names_in(function.__code__) if name in known]
    return *closure, *named, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Of functions and comprehensions inside as well."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)

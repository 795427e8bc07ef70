"""Reads the calls of a dump, forward and backward together, with their nested arguments.

The file may come from anybody: names are checked, and nothing is evaluated.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asd.dumps.formats.dump_folder import dump_members
from asd.dumps.formats.slots import read_tensor, split_name
from asd.errors import ConfigError, StateError

_NAME = re.compile(r"[A-Za-z]\w*(\.\w+)+")
_LONGEST = 1000
_DEEPEST = 20

Path_ = tuple[int | str, ...]


@dataclass(frozen=True)
class DtypeArgument:
    """A type as an argument, such as `Float16`."""

    name: str


@dataclass
class Call:
    """Call of an API or an operator."""

    name: str  # name, such as `Mint.mul.0`
    label: str  # name without the number: `Mint.mul`
    forward: str = ""  # name of the forward entry
    backward: str = ""  # name of the backward entry; empty when the dump has none
    # arguments; each a tensor's `Slot`, a `DtypeArgument`, a plain value, or a tuple or dictionary of these
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)  # keyword arguments
    attributes: dict[str, Any] | None = None  # arguments of an operator's constructor; None if the dump lacks them
    outputs: tuple[Any, ...] = ()  # outputs of the call
    gradients: tuple[Any, ...] = ()  # gradients of the outputs, the input of the backward pass
    input_gradients: tuple[Any, ...] = ()  # gradients of the inputs, the output of the backward pass
    problem: str = ""  # reason why the call cannot be checked; empty if it can


def read_calls(path: Path) -> tuple[str, list[Call]]:
    """Returns the task of a dump, and its calls in the order in which they ended.

    A call that cannot be understood is included with its `problem`; calls of shapes and of modules are left out.
    """
    task, has_data = "", False
    calls: dict[str, Call] = {}
    for where, name, value in dump_members(path):
        if where:
            has_data = True
            _take(path, name, value, calls)
        elif name == "framework" and value not in ("mindspore", None):
            raise ConfigError("api_info", str(path), f"a dump of MindSpore is needed, and this one is of {value!r:.40}")
        elif name == "task":
            task = str(value)
    if not has_data and not task:
        raise StateError(f"{path} is no dump: it has neither `task` nor `data`.")
    if has_data and not calls:
        raise StateError(f"{path} holds modules and no call of an API or operator: dump it at L1 or mix.")
    # A call from before the recording has no forward pass to re-run.
    return task, [call for call in calls.values() if call.forward and not _is_of_shapes(call)]


def _is_of_shapes(call: Call) -> bool:
    """Returns whether a call returned only sizes or types, so that no element was computed."""
    given = [value for _, value in leaves(call.outputs)]
    return bool(given) and not call.problem and all(isinstance(value, (int, DtypeArgument)) for value in given)


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yields the values inside tuples and dictionaries with their places."""
    if isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def _take(path: Path, name: str, value: object, calls: dict[str, Call]) -> None:
    label, direction, number = split_name(name)
    if not direction or label.startswith("Cell."):
        return
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise StateError(f"{path}: {name[:80]!r} is not the name of a call.")
    key = f"{label}.{number or 0}"
    call = calls.setdefault(key, Call(key, label))
    if direction == "forward":
        calls[key] = calls.pop(key)  # the order is that of the forward passes
    setattr(call, direction, name)
    if not isinstance(value, dict):
        call.problem = "its entry is not an object"
        return
    try:
        if direction == "forward":
            call.args, call.outputs = _sequence(value.get("input_args")), _sequence(value.get("output"))
            kwargs = _part(value.get("input_kwargs"), dict, "an object")
            call.kwargs = {key: _value(item, 1) for key, item in kwargs.items()}
            attributes = value.get("attributes")
            call.attributes = None if attributes is None else _part(attributes, dict, "an object")
        else:
            call.gradients, call.input_gradients = _sequence(value.get("input")), _sequence(value.get("output"))
    except StateError as error:
        call.problem = str(error).rstrip(".")


def _part(found: object, kind: type[Any], what: str) -> Any:
    if found is not None and not isinstance(found, kind):
        raise StateError(f"{found!r:.40} stands where {what} is needed")
    return kind() if found is None else found


def _sequence(found: object) -> tuple[Any, ...]:
    return tuple(_value(item, 1) for item in _part(found, list, "a list"))


def _value(found: object, depth: int) -> Any:
    if found is None:
        return None
    if depth > _DEEPEST:
        raise StateError(f"its arguments are nested more than {_DEEPEST} deep")
    if isinstance(found, list):
        return tuple(_value(item, depth + 1) for item in found)
    if not isinstance(found, dict):
        raise StateError(f"{found!r:.40} is no argument as a dump describes it")
    kind = found.get("type")
    if not isinstance(kind, str):
        return {key: _value(item, depth + 1) for key, item in found.items()}
    if "shape" not in found:
        return _scalar(found, kind)
    if kind.startswith("torch"):
        raise StateError("it is a call of PyTorch")
    return read_tensor(found, "an argument", "input")


def _scalar(found: dict[str, Any], kind: str) -> Any:
    value = found.get("value")
    if kind in ("int", "float", "bool", "str"):
        if type(value).__name__ != kind and not (kind == "float" and type(value) is int):
            raise StateError(f"{value!r:.40} stands where the dump says {kind}")
        return value
    if kind == "slice":
        parts = value if isinstance(value, list) and len(value) == 3 else ["none"]
        if not all(part is None or type(part) is int for part in parts):
            raise StateError(f"{value!r:.40} is no slice")
        return slice(*parts)
    if kind == "mindspore.dtype":
        return DtypeArgument(str(value))
    if kind in ("ellipsis", "Ellipsis"):
        return ...
    if isinstance(value, (bool, int, float)):  # numbers of NumPy
        return value
    raise StateError(f"an argument of the kind {kind!r:.40} cannot be re-run")

"""Arguments and results of a call as a dump holds them: tensors, numbers, texts, lists, objects."""

import types
import zlib
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from asd.operators.private.cells import own_parameters
from asd.operators.private.class_swap import stock_class
from asd.operators.sensors.base import ASDBase

Path = list[int | str]
_DEEPEST = 8


def dtype_name(tensor: Tensor) -> str:
    """Returns the name of a tensor's type, as dumps write it."""
    return str(tensor.dtype)


def to_array(tensor: Tensor) -> np.ndarray:
    """Returns the elements of `tensor`; bfloat16 as float32. A view where that is possible."""
    if tensor.dtype == ms.bfloat16:
        tensor = tensor.astype(ms.float32)
    array: np.ndarray = tensor.asnumpy()
    return array


def leaves(value: Any, path: Path | None = None) -> Iterator[tuple[Path, Any]]:
    """Yields the values inside lists, tuples and dictionaries with their places; an empty container is a value."""
    path = path or []
    if isinstance(value, (list, tuple)) and value and len(path) < _DEEPEST:
        for index, item in enumerate(value):
            yield from leaves(item, [*path, index])
    elif isinstance(value, dict) and value and len(path) < _DEEPEST:
        for key, item in value.items():
            yield from leaves(item, [*path, str(key)])
    else:
        yield path, value


def _scalar(value: Any) -> Any:
    """Returns a value that is neither tensor nor array, as JSON; null for what the format has no form for."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, (bool, int, float, str)):
        return {"type": type(value).__name__, "value": plain}
    if isinstance(value, slice):
        bounds = [part if isinstance(part, int) else None for part in (value.start, value.stop, value.step)]
        return {"type": "slice", "value": bounds}
    if isinstance(value, ms.Type):
        return {"type": "mindspore.dtype", "value": str(value)}
    if isinstance(value, (list, tuple)):
        return []
    if isinstance(value, dict):
        return {}
    return {"type": "ellipsis", "value": "..."} if value is Ellipsis else None


def encode(value: Any, tensor: Any) -> Any:
    """A value as JSON: what `tensor(array, dtype)` returns for tensors and arrays, a scalar's type and value."""
    if isinstance(value, Tensor):
        told = tensor(to_array(value), dtype_name(value))
        return {**told, "parameter": value.name} if isinstance(value, Parameter) else told
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return {**tensor(value, value.dtype.name), "type": "numpy.ndarray"}
    return _scalar(value)


def attributes_of(primitive: ops.Primitive) -> dict[str, Any]:
    """Returns the attributes of an operator that its arguments do not show: `transpose_b`, `axis`, ..."""
    return {"name": primitive.name, **{name: _plain(value) for name, value in primitive.init_attrs.items()}}


_BARE = frozenset(vars(nn.Cell())) | {"_func_graph_flags", "_cell_init_args"}
"""Attributes that each module has, and that do not affect its result."""
_PLAIN = (bool, int, float, str, type(None))
_SMALL = 64


def settings_of(cell: nn.Cell) -> dict[str, Any]:
    """Returns the settings of a module and of the operators it holds, and a check sum of its code."""
    found: dict[str, Any] = {"training": cell.training, "construct": _code_of(stock_class(cell).construct)}
    for name, value in vars(cell).items():
        checked = value.op if isinstance(value, ASDBase) else value
        primitive = getattr(checked, "primitive", checked)
        if name in _BARE or name.startswith(("asd_", "_asd")):
            continue
        if isinstance(primitive, ops.Primitive):
            found |= {f"{name}.{key}": each for key, each in attributes_of(primitive).items()}
        elif _is_setting(value):
            found[name] = _plain(value)
    return found


def optimizer_settings(optimizer: nn.Cell) -> dict[str, Any]:
    """Returns what an optimizer was made with, and its learning rate."""
    rates = {name: _plain(each) for name, each in own_parameters(optimizer).items() if _is_number(each)}
    return {"optimizer": stock_class(optimizer).__name__, **settings_of(optimizer), **rates}


def _is_setting(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_setting, value))
    if isinstance(value, dict):  # such as a group of parameters
        return all(_is_setting(each) or _is_number(each) for key, each in value.items() if key != "params")
    if isinstance(value, Tensor):
        return value.size <= _SMALL and not isinstance(value, Parameter)
    return isinstance(value, (*_PLAIN, ms.Type, types.FunctionType, types.BuiltinFunctionType))


def _is_number(value: Any) -> bool:
    """Returns whether it is a Parameter of one element, such as a learning rate."""
    return isinstance(value, Parameter) and value.size == 1


def _code_of(function: Any) -> str:
    """Returns a check sum of the code of a function, without lines, names of files and comments."""

    def parts(part: Any) -> Any:
        if not isinstance(part, types.CodeType):  # the order of a set is another one in each process
            return sorted(map(repr, part)) if isinstance(part, frozenset) else part
        has_text = any(isinstance(each, str) for each in part.co_consts[:1])  # a docstring is the first
        return part.co_code, part.co_names, [*map(parts, part.co_consts)][has_text:]

    code = getattr(function, "__code__", None)
    return "" if code is None else f"{zlib.crc32(repr(parts(code)).encode()):08x}"


def _plain(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items() if key != "params"}
    if isinstance(value, Tensor):
        return to_array(value).tolist()
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        return value.__qualname__
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else str(value)

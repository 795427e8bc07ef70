"""Converts arguments between a dump, MindSpore on the device, and MindSpore in float64."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from asd.dumps.precheck.calls import DtypeArgument
from asd.operators.debugger.precheck.inputs import DTYPES, Value

FLOATING = ("Float16", "BFloat16", "Float32", "Float64")
_TYPES: dict[str, Any] = {name: getattr(ms, name.lower()) for name in DTYPES if name != "Bool"} | {"Bool": ms.bool_}
_WIDE = {"Float16": "Float64", "BFloat16": "Float64", "Float32": "Float64", "Complex64": "Complex128"}


class NotCheckable(Exception):
    """Raised for a call that cannot be checked; the text is the reason, without a full stop."""


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns `value` with `change` applied to everything in its tuples and dictionaries."""
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in value)
    return {key: mapped(item, change) for key, item in value.items()} if isinstance(value, dict) else change(value)


def to_tensor(value: Any) -> Any:
    """Returns a value as the device gets it."""
    if isinstance(value, Value):
        return Tensor(value.array, _TYPES[value.dtype])
    return _dtype(value.name) if isinstance(value, DtypeArgument) else value


def wide_tensor(value: Any) -> Any:
    """Returns a value with float64 in place of every other floating-point type."""
    if isinstance(value, Value):
        wide = _WIDE.get(value.dtype, value.dtype)
        return Tensor(value.array.astype(DTYPES[wide]), _TYPES[wide])
    return _dtype(_WIDE.get(value.name, value.name)) if isinstance(value, DtypeArgument) else value


def from_tensor(tensor: Tensor) -> Value:
    """Returns the elements of a tensor; waits for them."""
    dtype = str(tensor.dtype)
    return Value(np.array((tensor.astype(ms.float32) if tensor.dtype == ms.bfloat16 else tensor).asnumpy()), dtype)


def from_json(value: Any) -> Any:
    """Returns an attribute from JSON: lists become tuples, names of types become the types."""
    if isinstance(value, list):
        return tuple(from_json(item) for item in value)
    return _TYPES.get(value, value) if isinstance(value, str) else value


def _dtype(name: str) -> Any:
    if name not in _TYPES:
        raise NotCheckable(f"there is no type {name!r:.40}")
    return _TYPES[name]

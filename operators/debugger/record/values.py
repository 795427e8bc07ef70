"""Arguments and results of a call as a dump holds them: tensors, numbers, texts, lists, objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

Path = list[int | str]
_DEEPEST = 8


def dtype_name(tensor: Tensor) -> str:
    """The name of a tensor's type, as dumps write it."""
    return str(tensor.dtype)


def to_array(tensor: Tensor) -> np.ndarray:
    """The elements of `tensor`; bfloat16 as float32. A view where that is possible."""
    if tensor.dtype == ms.bfloat16:
        tensor = tensor.astype(ms.float32)
    array: np.ndarray = tensor.asnumpy()
    return array


def leaves(value: Any, path: Path | None = None) -> Iterator[tuple[Path, Any]]:
    """The values inside lists, tuples and dictionaries with their places; an empty container is a value itself."""
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
    """A value that is neither tensor nor array, as JSON; null for what the format has no form for."""
    if isinstance(value, (bool, int, float, str)):
        return {"type": type(value).__name__, "value": value}
    if isinstance(value, np.generic):
        return {"type": type(value).__name__, "value": value.item()}
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
        return tensor(to_array(value), dtype_name(value))
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return {**tensor(value, value.dtype.name), "type": "numpy.ndarray"}
    return _scalar(value)


def attributes_of(primitive: ops.Primitive) -> dict[str, Any]:
    """What an operator was made with, which its arguments do not tell: `transpose_b`, `axis`, ..."""
    return {"name": primitive.name, **{name: _plain(value) for name, value in primitive.init_attrs.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else str(value)

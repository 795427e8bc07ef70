"""Slices of tensors that are recorded in their place: the key `slice` of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asd.dumps.record.config_object import ConfigObject

_VALID = 'a list of objects such as {"dim": 0, "begin": 0, "end": 16, "size": 4096}, of whole numbers'


@dataclass(frozen=True)
class Slice:
    """Slice along one dimension.

    Attributes:
        dim: The dimension, from 0; a tensor without it stays whole.
        begin: First index; negative from the end.
        end: The index after the last; None: up to the end.
        size: Required size of the dimension, else the tensor stays whole; None: any.
    """

    dim: int = 0
    begin: int = 0
    end: int | None = None
    size: int | None = None


def read_slices(inner: ConfigObject) -> tuple[Slice, ...]:
    """Returns the slices in the key `slice` of a task.

    Raises:
        ConfigError: It has another form.
    """
    keys = Slice.__dataclass_fields__
    items = inner.items("slice", lambda item: isinstance(item, dict) and item.keys() <= keys.keys(), _VALID)
    for item in items:
        for key, value in item.items():
            if type(value) is not int or (key in ("dim", "size") and value < 0):
                raise inner.wrong("slice", item, _VALID)
    return tuple(Slice(**item) for item in items)


def cut(array: np.ndarray[Any, Any], slices: tuple[Slice, ...]) -> np.ndarray[Any, Any]:
    """Returns the part that is recorded.

    >>> cut(np.arange(6).reshape(2, 3), (Slice(dim=1, end=2), Slice(dim=2, end=1))).tolist()
    [[0, 1], [3, 4]]
    """
    parts = [slice(None)] * array.ndim
    for each in slices:
        if each.dim < array.ndim and each.size in (None, array.shape[each.dim]):
            parts[each.dim] = slice(each.begin, each.end)
    return array[tuple(parts)] if slices else array

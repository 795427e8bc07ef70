"""Max, Min, Mean and Norm of a tensor, and its check sum, as in a dump of MindSpore."""

import math
import zlib
from collections.abc import Sequence
from ctypes import c_float
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
_ROW, _PART = 256, 8192
_SAFE = (1e-12, 1e15)  # largest magnitude of elements whose squares float32 holds


class Moments(NamedTuple):
    """Statistics of a floating-point tensor from one pass."""

    largest: float  # largest element; nan when one is nan
    smallest: float  # smallest element; nan when one is nan
    total: float  # sum of all elements
    squares: float  # sum of the squares of all elements
    non_finite: int  # number of elements that are inf or nan


def moments(array: Array) -> Moments:
    """Returns the moments of `array` by NumPy.

    Args:
        array: Any shape that is not empty; a floating-point type.
    """
    with np.errstate(all="ignore"):
        largest, smallest = float(array.max()), float(array.min())
        flat = array.reshape(-1)
        total = squares = 0.0
        whole, magnitude = 0, max(abs(largest), abs(smallest))
        if array.dtype == np.float32 and flat.size >= _PART and _SAFE[0] < magnitude < _SAFE[1]:
            whole = flat.size // _PART * _PART
            rows = flat[:whole].reshape(-1, _ROW)  # summed in float32, which is quick, and their sums in float64
            total = float(np.einsum("ij->i", rows).sum(dtype=np.float64))
            squares = float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64))
        for start in range(whole, flat.size, _PART):
            part = flat[start : start + _PART].astype(np.float64)
            total += float(part.sum())
            squares += float(np.einsum("i,i->", part, part))
    non_finite = 0 if math.isfinite(magnitude) else int(array.size - np.isfinite(array).sum())
    return Moments(largest, smallest, total, squares, non_finite)


def statistics(array: Array, *, high: bool = False) -> tuple[dict[str, Any], Moments]:
    """Returns the four fields of a tensor in `dump.json`, and the moments behind them.

    A bool has any and all for Max and Min, and no mean or norm. An integer counts as float32, a float64 is rounded to
    it, a complex number counts with its absolute value. Without dimensions the norm is the value itself, with its sign.
    Mean and Norm of a float16 are rounded to float16 unless `high` is true. An empty tensor has four nulls.

    Args:
        array: Any shape and type.
        high: Whether `precision` is `high`.

    Returns:
        The fields, and the moments in the array's own type; for an empty or bool tensor the moments are all zero.
    """
    if array.size == 0:
        return dict.fromkeys(("Max", "Min", "Mean", "Norm")), Moments(0.0, 0.0, 0.0, 0.0, 0)
    if array.dtype == np.bool_:
        fields = {"Max": bool(array.any()), "Min": bool(array.all()), "Mean": None, "Norm": None}
        return fields, Moments(0.0, 0.0, 0.0, 0.0, 0)
    own = moments(array) if array.dtype == np.float64 else None
    if array.dtype not in (np.float16, np.float32):
        with np.errstate(all="ignore"):
            array = (np.abs(array) if np.iscomplexobj(array) else array).astype(np.float32)
    found = moments(np.ascontiguousarray(array))
    own = own or found
    return _fields_of(found, array.shape, half=array.dtype == np.float16 and not high), own


def _fields_of(found: Moments, shape: Sequence[int], *, half: bool = False) -> dict[str, Any]:
    """Returns the four fields of a tensor with these moments.

    Args:
        found: Moments of its elements.
        shape: Shape of a tensor that is not empty.
        half: Whether mean and norm are rounded to float16, else to float32.
    """
    rounded = _to_float16 if half else lambda value: c_float(value).value  # which warns of nothing, and is quick
    mean = rounded(found.total / math.prod(shape))
    norm = rounded(math.sqrt(found.squares)) if len(shape) else found.largest
    return {"Max": found.largest, "Min": found.smallest, "Mean": mean, "Norm": norm}


def _to_float16(value: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float16(value))


def crc32(array: Array) -> str:
    """Returns the CRC-32 (as by zlib) of `array`'s bytes in C order, as eight lower-case hexadecimal digits.

    Args:
        array: Any shape and type. A bfloat16 tensor comes as float32, so that it agrees with a float32 tensor of equal
            values.

    >>> crc32(np.array([1, -2, 0], np.float32))
    '854d28b6'
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    return f"{zlib.crc32(flat.view(np.uint8).data):08x}"


def without_bad(n: Array, b: Array, largest: float | None = None) -> tuple[Array, Array, int]:
    """Replaces Inf and NaN by 0; returns also the number of those that only one has.

    An Inf of `n` does not count where `b` is beyond `largest`, with the same sign.
    """
    bad = ~(np.isfinite(n) & np.isfinite(b))
    beyond = np.zeros_like(bad) if largest is None else np.isinf(n) & (np.abs(b) > largest) & (np.sign(n) == np.sign(b))
    bad |= beyond
    if not bad.any():
        return n, b, 0
    same = (np.isnan(n) & np.isnan(b)) | (n == b) | beyond
    return np.where(bad, 0.0, n), np.where(bad, 0.0, b), int(np.count_nonzero(bad & ~same))

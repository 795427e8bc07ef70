"""One lookup of rows checked, through ctypes, by what runs inside a training step."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError
from asd.operators.kernel import library as kernel

__all__ = ["LookupCheck", "check_lookup"]


class LookupCheck(NamedTuple):
    """Above 1 a part is wrong; NaN where nothing can be said.

    Attributes:
        y: 0 where each row is what the table has, bit for bit; else 1 and the number of rows that are not.
        dtable: The worst residual of the gradient of the table as a multiple of what rounding explains.
    """

    y: float
    dtable: float


def check_lookup(
    ids: np.ndarray,
    table: np.ndarray | None = None,
    y: np.ndarray | None = None,
    *,
    dy: np.ndarray | None = None,
    dtable: np.ndarray | None = None,
    dtype: str = "",
) -> LookupCheck:
    """Checks y[t] = table[ids[t]], and the gradient of the table: dtable[v] is the sum of dy[t] over all ids[t] = v.

    A row is copied, so it must be the same bits. A gradient that is the sum of n > 1 rows may be off by what each
    addition rounds of the sum so far, half a unit in the last place of its type, and for any other order four times the
    deviation of a random walk, (4 + 4 sqrt(n)) half units of the magnitudes. What no token reads must be zero.

    Args:
        ids: Of any shape; int32 or int64, each a row of the table. Another number says nothing about anything.
        table: Of shape (rows, ...); float32 or float16, as all of them.
        y: Of the shape of ids and then that of a row.
        dy: The gradient of y.
        dtable: The gradient of the table.
        dtype: Type that it was summed in: `float32`, `float16` or `bfloat16`, which NumPy lacks; its own if not given.

    Raises:
        ConfigError: Shapes or types do not fit, or an id is no row.
        RuntimeError: The C++ kernel was not built.

    >>> ids, table = np.array([1, 1], np.int32), np.float32([[1], [2], [3]])
    >>> check_lookup(ids, table, np.float32([[2], [2]]), dy=np.float32([[5], [6]]), dtable=np.float32([[0], [11], [0]]))
    LookupCheck(y=0.0, dtable=0.0)
    >>> check_lookup(ids, table, np.float32([[2], [3]])).y
    2.0
    """
    if kernel.library is None:
        raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
    scores = [float("nan")] * 2
    for part, arrays in enumerate(((table, ids, y), (ids, dy, dtable))):
        given = [np.ascontiguousarray(array) for array in arrays if array is not None]
        if len(given) < len(arrays):
            continue
        data = (ctypes.c_void_p * 3)(*(array.ctypes.data for array in given))
        dimensions = (ctypes.c_int64 * 3)(*(array.ndim for array in given))
        sizes = [(ctypes.c_int64 * max(array.ndim, 1))(*array.shape) for array in given]
        shapes = (ctypes.c_void_p * 3)(*(ctypes.addressof(size) for size in sizes))
        dtypes = (ctypes.c_char_p * 3)(*(array.dtype.name.encode() for array in given))
        out = ctypes.c_double()
        type_of_sums = dtype.encode()
        if kernel.library.asd_lookup_arrays(part, data, dimensions, shapes, dtypes, type_of_sums, ctypes.byref(out)):
            told = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in given)
            raise ConfigError("ids, table, ...", told, "valid are float arrays of rows that the ids count")
        scores[part] = out.value if out.value >= 0 else float("nan")
    return LookupCheck(*scores)


def _declare(library: ctypes.CDLL) -> None:
    pointer: Any = ctypes.c_void_p
    library.asd_lookup_arrays.argtypes = [
        ctypes.c_int64, pointer, pointer, pointer, pointer, ctypes.c_char_p, pointer,
    ]  # fmt: skip
    library.asd_lookup_arrays.restype = ctypes.c_int64


if kernel.library is not None:
    _declare(kernel.library)

"""One matrix product checked by its checksum, through ctypes, by the function that runs inside a training step."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError
from asd.operators.kernel import library as kernel
from asd.operators.kernel.library import Schedule

__all__ = [
    "BLOCK",
    "TOLERANCES",
    "ProductCheck",
    "Schedule",
    "check_product",
    "schedule",
    "sign",
]

TOLERANCES = {"variance": 0, "mindspore": 1, "torch": 2}
"""How far a sum may be off; the numbers are `enum Tolerance` of product.h.

`variance`: random signs over blocks of 256 columns and a tolerance from the variance of rounding. `mindspore` and
`torch`: the two published rules, which sum whole rows without signs.
"""
BLOCK = 256
"""Columns under one sum."""
_FORMATS = ("float32", "float16", "bfloat16")

_WORD = 2**64 - 1


class ProductCheck(NamedTuple):
    """What the checksum says about one product.

    Attributes:
        score: The worst residual as a multiple of its tolerance; above 1 exactly when the product is wrong.
        row: Row of the worst wrong element, batches counted through; -1 when nothing is wrong.
        column: Its column; -1 when nothing is wrong, or the rule does not tell.
        error: How far it is from the element computed again in float64; `inf` when it is not finite.
        bound: The largest error that rounding explains there.
        residuals: Sums that were compared.
        flagged: How many of them exceeded the tolerance before they were computed again.
        judged: False when an operand is not finite, which makes no statement about the product.
    """

    score: float
    row: int
    column: int
    error: float
    bound: float
    residuals: int
    flagged: int
    judged: bool

    @property
    def wrong(self) -> bool:
        """Whether the product is wrong."""
        return not self.score <= 1.0


def check_product(
    a: np.ndarray,
    b: np.ndarray,
    product: np.ndarray,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str = "",
    tolerance: str = "variance",
) -> ProductCheck:
    """Checks `product` = a @ b.

    Args:
        a: Of shape (..., m, k), or (..., k, m) with `transpose_a`; float32 or float16.
        b: Of shape (..., k, n), or (..., n, k) with `transpose_b`; float32 or float16.
        product: Of shape (..., m, n); float32 or float16.
        transpose_a: Whether `a` is stored transposed.
        transpose_b: Whether `b` is stored transposed.
        dtype: Type that `product` was rounded to: `float32`, `float16` or `bfloat16`, which NumPy lacks; its own if
            not given.
        tolerance: A key of `TOLERANCES`.

    Raises:
        ConfigError: `dtype`, `tolerance` or the shapes are not valid.
        RuntimeError: The C++ kernel was not built.

    >>> a, b = np.eye(2, dtype=np.float32), np.float32([[1, 2], [3, 4]])
    >>> check_product(a, b, np.float32([[1, 2], [3, 4]])).wrong
    False
    >>> check_product(a, b, np.float32([[1, 2], [3, 4.5]]))[1:4]
    (1, 1, 0.5)
    """
    if kernel.library is None:
        raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
    if tolerance not in TOLERANCES:
        raise ConfigError("tolerance", tolerance, f"valid is one of {', '.join(TOLERANCES)}")
    rounded_to = dtype or product.dtype.name
    if rounded_to not in _FORMATS:
        raise ConfigError("dtype", rounded_to, f"valid is one of {', '.join(_FORMATS)}")
    arrays = [np.ascontiguousarray(array) for array in (a, b, product)]
    out = (ctypes.c_double * 8)()
    known = kernel.library.asd_checksum_arrays(
        *_face(arrays[0]), transpose_a, *_face(arrays[1]), transpose_b, *_face(arrays[2]), rounded_to.encode(),
        TOLERANCES[tolerance], out,
    )  # fmt: skip
    if known != 0:
        shapes = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in arrays)
        raise ConfigError("a, b, product", shapes, "valid are float32 and float16 arrays whose shapes fit as a product")
    score, row, column, error, bound, residuals, flagged, judged = out
    return ProductCheck(score, int(row), int(column), error, bound, int(residuals), int(flagged), bool(judged))


def schedule(gate: int = 0) -> Schedule:
    """The schedule that the kernel of this process reads for what the gate of this number judges; 0 for nobody's.

    Raises:
        RuntimeError: The C++ kernel was not built.
    """
    if kernel.library is None:
        raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
    found: Schedule = kernel.library.asd_checksum_schedule(gate).contents
    return found


def sign(column: int) -> float:
    """The sign of a column in the sums, as `sign_of` in product_check.cpp."""
    x = 0x9E3779B97F4A7C15 * (int(column) + 1) & _WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _WORD
    return -1.0 if (x ^ x >> 31) & 1 else 1.0


def _face(array: np.ndarray) -> tuple[int, int, object, bytes]:
    return array.ctypes.data, array.ndim, (ctypes.c_int64 * array.ndim)(*array.shape), array.dtype.name.encode()


def _declare(library: ctypes.CDLL) -> None:
    matrix: list[Any] = [ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64), ctypes.c_char_p]
    library.asd_checksum_arrays.argtypes = [
        *matrix, ctypes.c_int64, *matrix, ctypes.c_int64, *matrix, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p,
    ]  # fmt: skip
    library.asd_checksum_arrays.restype = ctypes.c_int64
    library.asd_checksum_schedule.argtypes = [ctypes.c_int64]
    library.asd_checksum_schedule.restype = ctypes.POINTER(Schedule)
    library.asd_checksum_is_due.argtypes = [ctypes.c_int64]
    library.asd_checksum_is_due.restype = ctypes.c_int64
    library.asd_checksum_sign.argtypes = [ctypes.c_int64]
    library.asd_checksum_sign.restype = ctypes.c_double


if kernel.library is not None:
    _declare(kernel.library)

"""One softmax checked by computing it again in float64, through ctypes, by what runs inside a training step."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError
from asd.operators.kernel import library as kernel

__all__ = ["SoftmaxCheck", "check_softmax"]

_TYPES = ("float32", "float16")


class SoftmaxCheck(NamedTuple):
    """The worst residual of each part as a multiple of what rounding explains: above 1 it is wrong.

    NaN where nothing can be said: the part was not given, or an operand is not finite.

    Attributes:
        y: Of the output.
        dx: Of the gradient of the input.
    """

    y: float
    dx: float


def check_softmax(
    x: np.ndarray | None = None,
    *,
    y: np.ndarray,
    dy: np.ndarray | None = None,
    dx: np.ndarray | None = None,
    dtype: str = "",
) -> SoftmaxCheck:
    """Checks y = exp(x - max) / sum(exp(x - max)) over the last axis, and dx = y (dy - sum(y dy)).

    What is compared is each element, so rows of y sum to one and those of dx to zero as far as these are right. With u
    = 2^-24, an exponential may be off by 2^-17 + 2^-20 |x - max| of itself, as kernels approximate it (measured on a
    CPU: 3e-6 near the maximum and 2.4e-5 far below it); the sum of n of them by u (16 + n / 2), and by the mean of what
    its terms are off. The sum of y dy is off by u (16 + n / 2) of its magnitudes. Where operands are narrower than
    float32, differences and results are rounded to their type on the way, so each counts one unit in its last place.

    Args:
        x: Of shape (..., n); float32 or float16, as all of them.
        y: The output.
        dy: Its gradient.
        dx: The gradient of x.
        dtype: Type that all were rounded to: `float32`, `float16` or `bfloat16`, which NumPy lacks; theirs if not
            given.

    Raises:
        ConfigError: Shapes or types do not fit.
        RuntimeError: The C++ kernel was not built.

    >>> check_softmax(np.float32([[1, 1]]), y=np.float32([[0.5, 0.5]])).y <= 1
    True
    >>> check_softmax(np.float32([[1, 1]]), y=np.float32([[0.5001, 0.4999]])).y > 1
    True
    """
    if kernel.library is None:
        raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
    scores = [float("nan")] * 2
    for part, arrays in enumerate(((x, y, y), (y, dy, dx))):
        given = [np.ascontiguousarray(array) for array in arrays if array is not None]
        if len(given) < len(arrays):
            continue
        kinds = {(array.dtype.name, array.shape) for array in given}
        if len(kinds) > 1 or y.dtype.name not in _TYPES or y.ndim == 0:
            told = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in given)
            raise ConfigError("x, y, ...", told, f"valid are arrays of one shape and of {' or '.join(_TYPES)}")
        data = (ctypes.c_void_p * 3)(*(array.ctypes.data for array in given))
        out = ctypes.c_double()
        rows = y.size // max(y.shape[-1], 1)
        names = y.dtype.name.encode(), dtype.encode()
        kernel.library.asd_softmax_arrays(part, data, rows, y.shape[-1], *names, ctypes.byref(out))
        scores[part] = out.value if out.value >= 0 else float("nan")
    return SoftmaxCheck(*scores)


def _declare(library: ctypes.CDLL) -> None:
    pointer: Any = ctypes.c_void_p
    library.asd_softmax_arrays.argtypes = [
        ctypes.c_int64, pointer, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p, pointer,
    ]  # fmt: skip
    library.asd_softmax_arrays.restype = ctypes.c_int64


if kernel.library is not None:
    _declare(kernel.library)

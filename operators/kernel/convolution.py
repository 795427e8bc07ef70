"""One convolution checked by its checksums, through ctypes, by what runs inside a training step."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError
from asd.operators.kernel import library as kernel

__all__ = ["ConvolutionCheck", "check_convolution"]

_TYPES = ("float32", "float16")
_FORMATS = (*_TYPES, "bfloat16")
_PARTS = ("x", "w", "y", "dy", "dx", "dw")


class ConvolutionCheck(NamedTuple):
    """The worst residual of each part as a multiple of what rounding explains: above 1 it is wrong.

    NaN where nothing can be said: the part was not given, or an operand is not finite.

    Attributes:
        y: Of the output.
        dx: Of the gradient of the input.
        dw: Of the gradient of the weights.
        residuals: Sums that were compared, of all three.
    """

    y: float
    dx: float
    dw: float
    residuals: int


def check_convolution(
    x: np.ndarray,
    w: np.ndarray,
    *,
    y: np.ndarray | None = None,
    dy: np.ndarray | None = None,
    dx: np.ndarray | None = None,
    dw: np.ndarray | None = None,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] | str = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    dtype: str = "",
) -> ConvolutionCheck:
    """Checks y = x * w, and the gradients of x and w for a gradient dy of y.

    Each is a matrix product with a tensor unfolded, and is checked as one, see `check_product`: with random signs s,
    the sum over channels o of s_o y[n, o, p] must be the convolution of x with the sum of s_o w[o]; the same over the
    input channels of dx, and over the outputs of dw. Tolerance and confirmation are those of a product with
    channels * kernel terms, outputs * kernel terms, and batch * places terms.

    Args:
        x: Of shape (N, groups * C, H, W); groups of channels have nothing to do with each other. Float32 or float16,
            as all of them.
        w: Of shape (groups * O, C, KH, KW).
        y: Of shape (N, groups * O, OH, OW).
        dy: Its gradient; with it dx and dw are checked where they are given.
        dx: The gradient of x.
        dw: The gradient of w.
        stride: Heights before widths, as all pairs.
        padding: Zeros above and left of x, or `same`; those below and right follow from the shape of y.
        dilation: Distance of the numbers that one element is made of.
        dtype: Type that results were rounded to: `float32`, `float16` or `bfloat16`; their own if not given.

    Raises:
        ConfigError: Shapes or types do not fit.
        RuntimeError: The C++ kernel was not built.

    >>> x, w = np.ones((1, 2, 3, 3), np.float32), np.ones((1, 2, 2, 2), np.float32)
    >>> check_convolution(x, w, y=np.full((1, 1, 2, 2), 8, np.float32)).y <= 1
    True
    >>> check_convolution(x, w, y=np.full((1, 1, 2, 2), 8.01, np.float32)).y > 1
    True
    """
    if kernel.library is None:
        raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
    if dtype and dtype not in _FORMATS:
        raise ConfigError("dtype", dtype, f"valid is one of {', '.join(_FORMATS)}")
    given = dict(zip(_PARTS, (x, w, y, dy, dx, dw), strict=True))
    for name, array in given.items():
        if array is not None and (array.dtype.name not in _TYPES or array.ndim != 4):
            raise ConfigError(
                name, f"{array.dtype.name}{list(array.shape)}", f"valid are four axes of {' or '.join(_TYPES)}"
            )
    arrays = [None if array is None else np.ascontiguousarray(array) for array in given.values()]
    same = padding == "same"
    before = (0, 0) if isinstance(padding, str) else padding
    data = (ctypes.c_void_p * 6)(*(None if array is None else array.ctypes.data for array in arrays))
    sizes = (ctypes.c_int64 * 24)(*(size for array in arrays for size in ((0,) * 4 if array is None else array.shape)))
    dtypes = (ctypes.c_char_p * 6)(*(b"" if array is None else array.dtype.name.encode() for array in arrays))
    kind = (ctypes.c_int64 * 8)(*stride, *dilation, *before, same, x.shape[1] // max(w.shape[1], 1))
    out = (ctypes.c_double * 6)()
    if kernel.library.asd_convolution_arrays(data, sizes, dtypes, kind, dtype.encode(), out) != 0:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in given.items() if array is not None)
        raise ConfigError("x, w, ...", shapes, "valid are shapes that fit as those of one convolution")
    told = [
        score if score >= 0 and has else float("nan")
        for score, has in zip(out, (y is not None, dx is not None, dw is not None), strict=False)
    ]
    return ConvolutionCheck(told[0], told[1], told[2], int(sum(out[3:])))


def _declare(library: ctypes.CDLL) -> None:
    pointer: Any = ctypes.c_void_p
    library.asd_convolution_arrays.argtypes = [pointer, pointer, pointer, pointer, ctypes.c_char_p, pointer]
    library.asd_convolution_arrays.restype = ctypes.c_int64


if kernel.library is not None:
    _declare(kernel.library)

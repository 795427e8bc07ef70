"""One norm checked by computing it again in float64, through ctypes, by what runs inside a training step."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError
from asd.operators.kernel import library as kernel

__all__ = ["NormCheck", "check_norm"]

_TYPES = ("float32", "float16")
_PARTS = ("x", "gamma", "beta", "y", "dy", "dx", "dgamma", "dbeta")


class NormCheck(NamedTuple):
    """The worst residual of each part as a multiple of what rounding explains: above 1 it is wrong.

    NaN where nothing can be said: the part was not given, or an operand is not finite.

    Attributes:
        y: Of the output.
        dx: Of the gradient of the input.
        dw: Of the gradients of gamma and beta.
    """

    y: float
    dx: float
    dw: float


def check_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray | None = None,
    *,
    y: np.ndarray | None = None,
    dy: np.ndarray | None = None,
    dx: np.ndarray | None = None,
    dw: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
    groups: int = 0,
    centred: bool = True,
    epsilon: float = 1e-5,
) -> NormCheck:
    """Checks y = n * gamma + beta with n = (x - mean) / sqrt(var + epsilon), and the gradients of x, gamma and beta.

    With d = dy * gamma, and means over what is normalized together, the gradient of x is
    (d - mean(d) - n * mean(d * n)) / sqrt(var + epsilon). A norm computes in float32 with running sums; of n numbers
    these are off by 2^-24 (16 + n / 2) times their magnitudes at most, as equal numbers are that one lane sums. For the
    gradients of gamma and beta, sums over all rows, that is what each step rounds of the sum so far, and 2^-24
    (16 + 4 sqrt(n)) of the magnitudes, four times the deviation of a random walk, for any other order. The tolerance of
    each element follows from that, with the cancellation in x - mean and in the variance.

    Args:
        x: Of shape (..., width), or (N, C, ...) with `groups`; float32 or float16, as all of them.
        gamma: Of shape (width,), or (C,) with `groups`.
        beta: As gamma; none is zeros.
        y: The output.
        dy: Its gradient; with it at least one of the following is checked.
        dx: The gradient of x.
        dw: The gradients of gamma and of beta.
        groups: Of channels that are normalized together, as in GroupNorm; 0 for the last axes, as in LayerNorm.
        centred: False where no mean is taken away, as in RMSNorm: mean, mean(d) and the mean in var are 0.
        epsilon: Added to the variance.

    Raises:
        ConfigError: Shapes or types do not fit.
        RuntimeError: The C++ kernel was not built.

    >>> x, gamma = np.float32([[1, -1], [3, -3]]), np.ones(2, np.float32)
    >>> check_norm(x, gamma, y=np.float32([[1, -1], [1, -1]])).y <= 1
    True
    >>> check_norm(x, gamma, y=np.float32([[1, -1], [1, -1.001]])).y > 1
    True
    """
    if kernel.library is None:
        raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
    given = dict(zip(_PARTS, (x, gamma, beta, y, dy, dx, *dw), strict=True))
    for name, array in given.items():
        if array is not None and array.dtype.name not in _TYPES:
            raise ConfigError(name, array.dtype.name, f"valid is one of {', '.join(_TYPES)}")
    arrays = [None if array is None else np.ascontiguousarray(array) for array in given.values()]
    data = (ctypes.c_void_p * 8)(*(None if array is None else array.ctypes.data for array in arrays))
    sizes = (ctypes.c_int64 * 8)(*(0 if array is None else array.size for array in arrays))
    dtypes = (ctypes.c_char_p * 8)(*(b"" if array is None else array.dtype.name.encode() for array in arrays))
    out = (ctypes.c_double * 3)()
    known = kernel.library.asd_norm_arrays(data, sizes, dtypes, len(x) if x.ndim else 1, groups, centred, epsilon, out)
    if known != 0:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in given.items() if array is not None)
        raise ConfigError("x, gamma, ...", shapes, "valid are shapes that fit as those of one norm")
    told = [
        score if score >= 0 and has else float("nan")
        for score, has in zip(out, (y is not None, dx is not None, dw[0] is not None), strict=True)
    ]
    return NormCheck(*told)


def _declare(library: ctypes.CDLL) -> None:
    pointer: Any = ctypes.c_void_p
    library.asd_norm_arrays.argtypes = [
        pointer, pointer, pointer, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_double, pointer,
    ]  # fmt: skip
    library.asd_norm_arrays.restype = ctypes.c_int64


if kernel.library is not None:
    _declare(kernel.library)

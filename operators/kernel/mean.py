"""One mean over ranks checked against what the ranks gave, through ctypes, by what runs inside a training step."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from asd.errors import ConfigError
from asd.operators.kernel import library as kernel

__all__ = ["BLOCK", "NUMBERS", "blocks_of", "check_mean", "tell"]

BLOCK = 65536
"""Elements under one sum; `kBlock` of mean_check.cpp."""
NUMBERS = 3
"""That a rank tells of a block: the sum, the sum of magnitudes, and 1 where it was computed."""


def check_mean(gradients: Sequence[np.ndarray], mean: np.ndarray, *, factor: float | None = None) -> float:
    """Checks that `mean` is the mean of `gradients`: the sums of both fit, in blocks of 65536 elements.

    An element of the mean is a sum of as many float32 numbers as there are ranks, times a factor. Each of these steps
    rounds by 2^-24 of what it gives at most, so the sum over a block is off by no more than (2 ranks + 4) 2^-24 times
    the mean of the ranks' sums of magnitudes, whatever the order of the additions.

    Args:
        gradients: What each rank gave, float32 or float16, of any shape.
        mean: What came out, of the same shape; its rounding to float16 is allowed for.
        factor: Of the sum over the ranks; 1 / ranks if not given.

    Returns:
        The worst residual as a multiple of its bound: above 1 the mean is wrong, infinite if it is not finite. NaN
        where what a rank gave is not finite, or so large that its sum may not be: that says nothing about the mean.

    Raises:
        ConfigError: The shapes differ, or a type is not valid.
        RuntimeError: The C++ kernel was not built.

    >>> own = [np.float32([1, 2, 3]), np.float32([3, 4, 7])]
    >>> check_mean(own, np.float32([2, 3, 5])) <= 1
    True
    >>> check_mean(own, np.float32([2, 3, 5.001])) > 1
    True
    """
    if len({array.shape for array in (*gradients, mean)}) != 1 or not mean.size:
        shapes = ", ".join(str(list(array.shape)) for array in (*gradients, mean))
        raise ConfigError("gradients, mean", shapes, "valid are arrays of one shape with elements")
    told = np.sum([tell(gradient) for gradient in gradients], axis=0, dtype=np.float32)
    array = np.ascontiguousarray(mean)
    score: float = _library().asd_mean_score(
        array.ctypes.data, array.size, _dtype(array), told.ctypes.data, factor or 1 / len(gradients), len(gradients)
    )
    return score if score >= 0 else float("nan")


def tell(gradient: np.ndarray) -> np.ndarray:
    """What one rank tells of its gradient: float32 of shape (blocks, 3), see `NUMBERS`.

    Raises:
        ConfigError: Its type is not valid.
        RuntimeError: The C++ kernel was not built.
    """
    array = np.ascontiguousarray(gradient)
    told = np.zeros((blocks_of(array.size), NUMBERS), np.float32)
    _library().asd_mean_tell(array.ctypes.data, array.size, _dtype(array), told.ctypes.data)
    return told


def blocks_of(elements: int) -> int:
    """Sums of a tensor."""
    return -(-elements // BLOCK)


def _dtype(array: np.ndarray) -> bytes:
    if array.dtype.name not in ("float32", "float16"):
        raise ConfigError("dtype", array.dtype.name, "valid is float32 or float16")
    name: str = array.dtype.name
    return name.encode()


def _library() -> ctypes.CDLL:
    if kernel.library is None:
        raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
    return kernel.library


def _declare(library: ctypes.CDLL) -> None:
    tensor: list[Any] = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p]
    library.asd_mean_tell.argtypes = [*tensor, ctypes.c_void_p]
    library.asd_mean_tell.restype = ctypes.c_int64
    library.asd_mean_score.argtypes = [*tensor, ctypes.c_void_p, ctypes.c_double, ctypes.c_int64]
    library.asd_mean_score.restype = ctypes.c_double


if kernel.library is not None:
    _declare(kernel.library)

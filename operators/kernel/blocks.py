"""Blocks of tensors read where they lie: hashes and extremes from one trip to memory, in a few threads."""

from __future__ import annotations

import functools
import os

import numpy as np

from asd.operators.kernel import library as kernel
from asd.rules.history.seal import BLOCK

__all__ = ["BLOCK_DTYPE", "TYPES", "blocks_of", "hashes_of_blocks", "read_blocks", "threads_for"]

TYPES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
"""What can be read, and how many bytes an element has; `kTypes` of blocks.cpp, in its order."""
BLOCK_DTYPE = np.dtype([("data", np.uint64), ("bytes", np.int64), ("type", np.int64), ("smallest", np.int64)])
"""Where a block lies, what it is of, and whether its smallest value is asked for; `struct Block` of blocks.cpp."""
_MOST_THREADS = 4
_FEW_BYTES = 1 << 22
"""Up to here a second thread takes longer to start than to help."""


def blocks_of(address: int, size: int, dtype: str, *, smallest: bool = False) -> np.ndarray:
    """The table of a tensor's blocks, of type `BLOCK_DTYPE`.

    Args:
        address: Where its first byte is.
        size: How many bytes it has; the last block may be shorter than the others.
        dtype: One of `TYPES`.
        smallest: Whether its smallest value will be asked for.
    """
    begin = np.arange(0, size, BLOCK)
    table = np.empty(len(begin), BLOCK_DTYPE)
    table["data"] = address + begin
    table["bytes"] = np.minimum(BLOCK, size - begin)
    table["type"], table["smallest"] = list(TYPES).index(dtype), smallest
    return table


def read_blocks(table: np.ndarray, *, extremes: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Reads what `table` says; nobody may write or free it meanwhile.

    Args:
        table: Contiguous, of type `BLOCK_DTYPE`.
        extremes: Whether these are asked for.

    Returns:
        A 64-bit hash of the bits of each block; and as float64 of shape (blocks, 2) its largest magnitude, `nan` if an
        element is not finite, and its smallest value, 0 where it is not asked for; empty without `extremes`.

    Raises:
        RuntimeError: The kernel was not built.
    """
    if kernel.library is None:
        raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
    hashes = np.empty(len(table), np.uint64)
    found = np.empty((len(table) if extremes else 0, 2))
    threads = threads_for(table)
    kernel.library.asd_read_blocks(
        table.ctypes.data, len(table), threads, hashes.ctypes.data, found.ctypes.data if extremes else None
    )
    return hashes, found


def hashes_of_blocks(array: np.ndarray) -> tuple[int, ...]:
    """A 64-bit hash of the bits of each 64 KiB of `array`, any shape and type; the last block may be shorter.

    Raises:
        RuntimeError: The kernel was not built.
    """
    data = np.ascontiguousarray(array)
    hashes, _ = read_blocks(blocks_of(data.ctypes.data, data.nbytes, "float32"), extremes=False)
    return tuple(hashes.tolist())


def threads_for(table: np.ndarray) -> int:
    """How many threads read it."""
    return _cores() if table["bytes"].sum() > _FEW_BYTES else 1


@functools.cache
def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_THREADS, cores)

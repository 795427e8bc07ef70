"""What is sealed for the gate of one guard: it looks at the blocks once, right before it lets an update pass."""

from __future__ import annotations

import enum
import weakref

import numpy as np

from asd.operators.kernel import library as kernel
from asd.operators.kernel.blocks import threads_for

__all__ = ["GateSeal", "SealState"]


class SealState(enum.IntEnum):
    """What became of a seal; `State` of seal.cpp."""

    NONE = 0
    SEALED = 1
    """The gate has not looked yet."""
    KEPT = 2
    CHANGED = 3
    """The update passed: several tensors changed, or such as are not judged."""
    BROKEN = 4
    """The update was refused, and so is each one until the seal is taken away."""


class GateSeal:
    """That of one guard.

    Args:
        guard: Its number.

    Raises:
        RuntimeError: The kernel was not built.
    """

    def __init__(self, guard: int) -> None:
        if kernel.library is None:
            raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
        self._library, self._guard, self._blocks = kernel.library, guard, 0
        weakref.finalize(self, kernel.library.asd_unseal, guard).atexit = False

    def put(self, table: np.ndarray, hashes: np.ndarray, tensors: np.ndarray, judged: np.ndarray) -> None:
        """Seals blocks until the gate looks; their memory must stay where it is as long.

        Args:
            table: Of type `BLOCK_DTYPE`, contiguous.
            hashes: Of each block, uint64.
            tensors: Of each block the number of its tensor.
            judged: Of each tensor whether a change of it is a fault.
        """
        hashes, tensors = np.ascontiguousarray(hashes, np.uint64), np.ascontiguousarray(tensors, np.int64)
        judged, self._blocks = np.ascontiguousarray(judged, np.uint8), len(table)
        self._library.asd_seal(
            self._guard, table.ctypes.data, len(table), hashes.ctypes.data, tensors.ctypes.data, judged.ctypes.data,
            len(judged), threads_for(table),
        )  # fmt: skip

    def do_not_judge(self, tensor: int) -> None:
        """Says that the program wrote this tensor itself."""
        self._library.asd_do_not_judge(self._guard, tensor)

    @property
    def state(self) -> SealState:
        """What became of it."""
        return SealState(self._library.asd_seal_state(self._guard, None))

    def found(self) -> np.ndarray:
        """Of each block the hash that the gate found."""
        found = np.empty(self._blocks, np.uint64)
        self._library.asd_seal_state(self._guard, found.ctypes.data)
        return found

    def take_away(self) -> None:
        """Nothing is sealed any more."""
        self._library.asd_unseal(self._guard)

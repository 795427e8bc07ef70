"""Runs of elements of the gradients at the gate of one guard, kept for the host."""

from __future__ import annotations

import weakref

import numpy as np

from asd.operators.kernel import library as kernel

__all__ = ["RUN_DTYPE", "GateSamples"]

RUN_DTYPE = np.dtype([("gradient", np.int64), ("offset", np.int64), ("count", np.int64)])
"""Which of the gradients, how many elements before the run, and how many in it; `struct Run` of samples.cpp."""


class GateSamples:
    """Those of one guard.

    Args:
        guard: Its number.

    Raises:
        RuntimeError: The kernel was not built.
    """

    def __init__(self, guard: int) -> None:
        if kernel.library is None:
            raise RuntimeError("the C++ kernel was not built; install the package where a C++ compiler is.")
        self._library, self._guard, self._total = kernel.library, guard, 0
        weakref.finalize(self, kernel.library.asd_drop_samples, guard).atexit = False

    def ask(self, runs: np.ndarray) -> None:
        """Says what to keep of the next update's gradients: of type `RUN_DTYPE`, contiguous."""
        self._total = int(runs["count"].sum())
        self._library.asd_ask_for_samples(self._guard, runs.ctypes.data, len(runs))

    def take(self) -> np.ndarray | None:
        """The kept elements, run after run, as float64; None if there was no update, or more than one since `ask`."""
        values = np.empty(self._total)
        return values if self._library.asd_get_samples(self._guard, values.ctypes.data) == 1 else None

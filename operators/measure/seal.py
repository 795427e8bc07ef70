"""Hashes weights and optimizer state where a step ends and where the next begins, for the tier that compares both."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from statistics import median

import numpy as np
from mindspore import Parameter

from asd.operators.kernel import library as kernel
from asd.operators.measure.parallel_reading import read_each
from asd.operators.private.cells import writes_to
from asd.tiers.seal import BLOCK, Sealed

__all__ = ["StateSeal", "hashes_of_blocks"]

_SMALLEST = 8
"""Elements: programs clip a scalar of theirs now and then, by ways that leave no trace, and faults hardly hit one."""
_KEPT = 32


class StateSeal:
    """Of one optimizer.

    Args:
        parameters: The weights and what the optimizer keeps about them.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = {each.name: each for each in parameters if each.size >= _SMALLEST}
        self._after: tuple[int, dict[str, Sealed]] | None = None
        self._seconds: list[float] = []
        self._watched = False

    @property
    def seconds(self) -> float:
        """What both hashes of a comparison take; 0 while it is not known."""
        return 2 * median(self._seconds) if self._seconds else 0.0

    @property
    def watched(self) -> bool:
        """Whether the beginning of the running step was seen."""
        return self._watched

    def close(self, step: int) -> None:
        """Keeps what `step` left, if its beginning was seen: else nobody will ask at that of the next."""
        self._after = (step, self._read()) if self._watched else None
        self._watched = False

    def open(self) -> tuple[int, dict[str, Sealed], dict[str, Sealed]] | None:
        """The step that was closed last, what it left, and what is there now.

        Returns:
            None if no step was closed since the last call: what changed then need not have changed between steps.
        """
        closed, self._after, self._watched = self._after, None, True
        return None if closed is None else (*closed, self._read())

    def _read(self) -> dict[str, Sealed]:
        begin = time.perf_counter()
        parameters = self._parameters.values()
        places = [_place(parameter) for parameter in parameters]
        hashes = read_each(hashes_of_blocks, parameters)
        found = dict(zip(self._parameters, map(Sealed, places, hashes), strict=True))
        self._seconds = [*self._seconds[1 - _KEPT :], time.perf_counter() - begin]
        return found


def hashes_of_blocks(array: np.ndarray) -> tuple[int, ...]:
    """A 64-bit hash of the bits of each 64 KiB of `array`, any shape and type; the last block may be shorter.

    Raises:
        RuntimeError: The kernel was not built.
    """
    return kernel.hashes(array, BLOCK)


def _place(parameter: Parameter) -> Hashable:
    # `set_data` and what loads checkpoints give another address, operators in place another version.
    return parameter.data_ptr(), writes_to(parameter), parameter.shape, parameter.dtype

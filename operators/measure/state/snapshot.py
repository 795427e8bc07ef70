"""What is read of an optimizer's state at one moment, and what reads it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

import numpy as np

__all__ = ["SELDOM", "SHARE", "Snapshot", "StateReader"]

SHARE = 0.03
"""Of the time of a step that reading may take; what takes longer is read in turns, or not in each step."""
SELDOM = 16
"""Steps from one reading of a tensor to the next at most."""


class Snapshot(NamedTuple):
    """Some blocks at one moment.

    Attributes:
        turn: Which of the `turns` it was.
        turns: In how many turns all blocks were read then.
        places: Per tensor what changes when the program gives it another value: its address, its version, its size.
        chosen: Which blocks were read, as numbers over all tensors.
        tensors: Of each of these the number of its tensor.
        hashes: Of each of these; none where nothing can hash.
        extremes: Of each its largest magnitude, `nan` if an element is not finite, and its smallest value, 0 where it
            is not asked for; float64 of shape (blocks, 2). Empty where extremes are not asked for.
    """

    turn: int
    turns: int
    places: list[Hashable]
    chosen: np.ndarray
    tensors: np.ndarray
    hashes: np.ndarray
    extremes: np.ndarray

    def equals(self, other: Snapshot) -> bool:
        """Whether nothing was written in between."""
        return self.places == other.places and np.array_equal(self.hashes, other.hashes)


class StateReader(Protocol):
    """Reads the tensors of an optimizer's state.

    Attributes:
        tensor_of: Per block the number of its tensor, ascending.
        unread: Names of tensors that can't be read.
    """

    tensor_of: np.ndarray
    unread: list[str]

    def due(self, step: int) -> bool:
        """Whether something is read after this step."""

    def read(self, step: int, *, extremes: bool = True) -> Snapshot:
        """What has its turn in this step, as it is now."""

    def pace(self, step_seconds: float) -> None:
        """Chooses how much to read, from what readings took and what a step takes, so that it takes `SHARE` of it."""

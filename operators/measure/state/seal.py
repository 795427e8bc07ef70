"""Compares the blocks of weights and optimizer state that a step left with what the next step finds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mindspore import Parameter

from asd.operators.measure.state.snapshot import Snapshot, StateReader
from asd.tiers.seal import Sealed

__all__ = ["StateSeal"]

_SMALLEST = 8
"""Elements: programs clip a scalar of theirs now and then, by ways that leave no trace, and faults hardly hit one."""


class StateSeal:
    """Of one optimizer.

    Args:
        blocks: What reads the tensors.
        tensors: These, in the same order.
    """

    def __init__(self, blocks: StateReader, tensors: Sequence[Parameter]) -> None:
        self._blocks = blocks
        self._names = {i: each.name for i, each in enumerate(tensors) if each.size >= _SMALLEST}
        self._after: tuple[int, Snapshot] | None = None
        self._watched = False

    @property
    def watched(self) -> bool:
        """Whether the beginning of the running step was seen."""
        return self._watched

    def close(self, step: int, left: Snapshot | None) -> None:
        """Keeps what `step` left, if its beginning was seen: else nobody will ask at that of the next.

        Args:
            step: The step that was made.
            left: What was read at its end; None if nothing was, and it has to be done now.
        """
        self._after = (step, left or self._blocks.read(step, extremes=False)) if self._watched else None
        self._watched = False

    def open(self) -> tuple[int, dict[str, Sealed], dict[str, Sealed]] | None:
        """The step that was closed last, what it left, and what is there now; both empty where nothing changed.

        Returns:
            None if no step was closed since the last call: what changed then need not have changed between steps.
        """
        closed, self._after, self._watched = self._after, None, True
        if closed is None:
            return None
        step, left = closed
        found = self._blocks.read(left.turn, extremes=False)
        if found.equals(left):
            return step, {}, {}
        return step, self._sealed(left), self._sealed(found)

    def _sealed(self, snapshot: Snapshot) -> dict[str, Sealed]:
        begins, ends = (np.searchsorted(snapshot.tensors, list(self._names), side) for side in ("left", "right"))
        every, turn = snapshot.turns, snapshot.turn
        return {
            name: Sealed(snapshot.places[i], tuple(snapshot.hashes[begin:end].tolist()), (turn - i) % every, every)
            for (i, name), begin, end in zip(self._names.items(), begins, ends, strict=True)
        }

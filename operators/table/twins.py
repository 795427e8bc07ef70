"""Which outputs are computed twice in a step, as recomputation does it: redundancy that costs no computation.

The kernel hashes each call of such an output in the steps in which its layer's results are due, order and all. Where
each call had a twin with the same bits in the first steps, each has to have one later.
"""

from __future__ import annotations

from asd.rules.readings.reading import RECOMPUTED, Reading

__all__ = ["Twins"]

_LEARNED = 4
"""Steps in which all calls had twins before one that has none is wrong."""
_CHANCES = 3
"""So often one may have none before that; then the output is not repeated bit for bit."""
_WRONG = 2.0


class Twins:
    """What is known of the calls of one output.

    Attributes:
        pairs: What the kernel is told: 0 to hash nothing, -1 to hash, above 0 that of so many calls each has a twin.
    """

    def __init__(self) -> None:
        self.pairs = 0
        self._calls = self._alike = 0
        self._chances = _CHANCES

    def take(self, reading: Reading, twins: int, *, hashed: bool) -> Reading | None:
        """Learns from a step, or judges it; returns what to judge its output by, where it was judged.

        Args:
            reading: Of the output.
            twins: Hashes of all its calls, exclusive or.
            hashed: Whether they were hashed.
        """
        calls = reading.calls
        if calls % 2 or not self._chances:
            return None
        if self.pairs == 0:
            self.pairs, self._calls = -1, calls
            return None
        if not hashed:
            return None
        if calls != self._calls:  # an evaluation between two steps, or another number of micro-batches
            if self.pairs < 0:
                self._calls, self._alike = calls, 0
            return None
        if self.pairs > 0:
            score = _WRONG if twins else 0.0
            return Reading(
                f"{reading.checkpoint}.recomputed", score, score, 0, calls, reading.order, 1, kind=RECOMPUTED
            )
        self._learn(alike=twins == 0)
        return None

    def _learn(self, *, alike: bool) -> None:
        self._alike = self._alike + 1 if alike else 0
        self._chances -= not alike
        if self._alike >= _LEARNED:
            self.pairs = self._calls
        elif not self._chances:
            self.pairs = 0

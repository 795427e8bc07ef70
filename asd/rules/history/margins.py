"""How far healthy values go: a margin fitted to the largest distances that were seen."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from math import inf, log, sqrt
from operator import attrgetter
from typing import Any

from asd.errors import StateError
from asd.rules.readings.kinds import Kind
from asd.rules.saved import saved_count, saved_keys, saved_number, saved_numbers, wrong_state

__all__ = ["ALPHA", "ENOUGH", "KEPT", "Margins", "Tail", "exceeded_by"]

ALPHA = 1e-5
"""Steps with a first-level alarm, of all healthy ones, that a margin allows for."""
KEPT = 64
FEWEST = 8
ENOUGH = 10 * KEPT
"""Values of which the largest 64 are a tail."""
FIT_FROM = 16
"""Steps before a fit: fewer say nothing about the largest of them."""
WIDEST = 10.0
"""Bits: the root of a million, the factor of the published rules on squares."""


def exceeded_by(largest: Sequence[float], count: int, alpha: float, *, widen: float = 1.0) -> float:
    """What a share `alpha` of all distances exceeds, if they fall off exponentially.

    Args:
        largest: The largest distances that were seen, at least one.
        count: How many were seen.
        alpha: Above 0.
        widen: Factor on the mean excess; 1 for the best estimate.
    """
    u = min(largest)
    beta = (sum(largest) / len(largest) - u) * widen
    return u + beta * log(len(largest) / (count * alpha))


_MARGIN = attrgetter("margin")


class Tail:
    """A margin that one healthy step in 100,000 exceeds, if distances fall off exponentially.

    Of each step the largest distance of all checkpoints counts, for what sends one of them far up, such as an unusual
    batch, sends many. Of these the k largest are looked at, an eighth of all, from 8 to 64. With u the smallest of
    them, beta their mean excess over u and n steps seen, the margin is

        u + beta * (1 + 2 / sqrt(k)) * ln(k / (n * 1e-5))

    between `lowest` and `highest`; `first` until n is 16. The second factor covers what so few say about beta.

    Args:
        lowest: The smallest margin.
        first: The margin before anything is known.
        highest: The largest margin.

    Attributes:
        margin: In force; it changes in `refit` only, so that all checkpoints of a step are judged alike.
        pending: The largest healthy distance of the running step, `-inf` before there is one.
    """

    __slots__ = ("_count", "_highest", "_largest", "_lowest", "margin", "pending")

    def __init__(self, lowest: float, first: float, highest: float) -> None:
        self._lowest, self._highest = lowest, highest
        self._largest: list[float] = []
        self._count = 0
        self.pending = -inf
        self.margin = first

    def refit(self) -> None:
        """Ends a step: brings the margin up to date."""
        distance, self.pending = self.pending, -inf
        if distance == -inf:
            return
        self._count += 1
        if self._count <= KEPT:
            insort(self._largest, distance)
        elif distance > self._largest[0]:
            del self._largest[0]
            insort(self._largest, distance)
        if self._count < FIT_FROM:
            return
        k = min(max(self._count // 8, FEWEST), KEPT)
        fitted = exceeded_by(self._largest[-k:], self._count, ALPHA, widen=1 + 2 / sqrt(k))
        self.margin = min(max(fitted, self._lowest), self._highest)

    def state(self) -> dict[str, Any]:
        """The kept distances, the count of all, and the margin in force."""
        return {"largest": list(self._largest), "count": self._count, "margin": self.margin}

    def restore(self, state: object) -> None:
        """Continues from a saved state.

        Raises:
            StateError: It can't have been saved by a tail with these bounds. The tail is then as it was.
        """
        what = "a fitted margin"
        values = saved_keys(what, state, ("largest", "count", "margin"))
        count = saved_count(what, "count", values["count"])
        largest = sorted(saved_numbers(what, "largest", values["largest"], min(count, KEPT)))
        margin = saved_number(what, "margin", values["margin"])
        if not self._lowest <= margin <= self._highest:
            raise wrong_state(what, "margin", margin, f"a number from {self._lowest:g} to {self._highest:g}")
        self._largest, self._count, self.margin = largest, count, margin


class Margins:
    """The fitted margins of one kind of tensors: one per feature above the envelope, one in deviations.

    All checkpoints of a kind may share one. Whoever shares it calls `refit` once a step.

    Args:
        kind: Gives the smallest and the first margins.

    Attributes:
        margins: Those in force, of each feature and in deviations where there is one.
        version: Counts the changes of the margins.
    """

    def __init__(self, kind: Kind) -> None:
        self.envelope = tuple(Tail(lowest, max(kind.first, lowest), WIDEST) for lowest in kind.envelope)
        self.deviations = None
        if kind.deviations is not None:
            self.deviations = Tail(kind.deviations, 2 * kind.deviations, 4 * kind.deviations)
        self.version = 0
        self._tails = [*self.envelope, *([self.deviations] if self.deviations is not None else [])]
        self.margins = self._margins()

    def add(self, distances: Sequence[float]) -> None:
        """Takes in the distances of a healthy value: of each feature, and in deviations; `-inf` for none."""
        for tail, distance in zip(self._tails, distances, strict=False):
            if distance > tail.pending:
                tail.pending = distance

    def refit(self) -> None:
        """Ends a step: brings all margins up to date."""
        for tail in self._tails:
            tail.refit()
        before, self.margins = self.margins, self._margins()
        self.version += self.margins != before

    def _margins(self) -> tuple[float, ...]:
        return tuple(map(_MARGIN, self._tails))

    def state(self) -> list[dict[str, Any]]:
        """What `restore` takes; ready for JSON."""
        return [tail.state() for tail in self._tails]

    def restore(self, state: object) -> None:
        """Continues from a saved state.

        Raises:
            StateError: It was not saved by margins of this kind. The tails are then as they were.
        """
        tails = self._tails
        if not isinstance(state, list) or len(state) != len(tails):
            raise StateError(
                f"State of fitted margins is {state!r}, which is not valid: a list of {len(tails)} states."
            )
        before = self.state()
        try:
            for tail, values in zip(tails, state, strict=True):
                tail.restore(values)
        except StateError:
            for tail, values in zip(tails, before, strict=True):
                tail.restore(values)
            raise
        self.margins = self._margins()
        self.version += 1

"""How far healthy values go: a margin fitted to the largest distances that were seen."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from math import log, log2
from typing import Any

from asd.errors import StateError
from asd.tiers.kinds import Kind
from asd.tiers.saved import check_count, check_keys, check_numbers

__all__ = ["ALPHA", "ENOUGH", "KEPT", "Tail", "Tails", "exceeded_by"]

ALPHA = 1e-6
"""First-level alarms per check that a margin allows for."""
KEPT = 64
ENOUGH = 10 * KEPT
"""Values before a fit: fewer say nothing about the largest tenth of them."""
WIDEST_DEVIATIONS = 4.0
"""How much wider than the measured one the margin in deviations may become."""


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


class Tail:
    """A margin that one healthy value in a million exceeds, if distances fall off exponentially.

    Of all distances the k = 64 largest are kept. With u the smallest of them, beta their mean excess over u and n
    values seen, the margin is u + beta * ln(k / (n * 1e-6)), between `lowest` and `highest`; `lowest` until n is 640.

    Args:
        lowest: The smallest margin, and the first one.
        highest: The largest margin.

    Attributes:
        margin: In force; it changes in `refit` only, so that all checkpoints of a step are judged alike.
    """

    __slots__ = ("_count", "_highest", "_largest", "_lowest", "margin")

    def __init__(self, lowest: float, highest: float) -> None:
        self._lowest, self._highest = lowest, max(lowest, highest)
        self._largest: list[float] = []
        self._count = 0
        self.margin = lowest

    def add(self, distance: float) -> None:
        """Takes in the distance of a healthy value."""
        self._count += 1
        if len(self._largest) < KEPT:
            heapq.heappush(self._largest, distance)
        elif distance > self._largest[0]:
            heapq.heapreplace(self._largest, distance)

    def refit(self) -> None:
        """Brings the margin up to date."""
        if self._count < ENOUGH:
            return
        fitted = exceeded_by(self._largest, self._count, ALPHA)
        self.margin = min(max(fitted, self._lowest), self._highest)

    def state(self) -> dict[str, Any]:
        """The kept distances, the count of all, and the margin in force."""
        return {"largest": sorted(self._largest), "count": self._count, "margin": self.margin}

    def restore(self, state: object) -> None:
        """Continues from a saved state.

        Raises:
            StateError: It can't have been saved by a tail with these bounds. The tail is then as it was.
        """
        what = "a fitted margin"
        values: Mapping[str, Any] = check_keys(what, state, ("largest", "count", "margin"))
        count = check_count(what, "count", values["count"])
        largest = sorted(check_numbers(what, "largest", values["largest"], min(count, KEPT)))
        margin = check_numbers(what, "margin", [values["margin"]])[0]
        if not self._lowest <= margin <= self._highest:
            raise StateError(
                f"State of {what}: margin has the value {margin!r}, which is not valid: a number from {self._lowest:g} "
                f"to {self._highest:g}."
            )
        self._largest, self._count, self.margin = largest, count, margin


class Tails:
    """The fitted margins of one kind of tensors: one per feature above the envelope, one in deviations.

    All checkpoints of a kind may share one: a fit to hundreds of them is there after a few steps. Whoever shares it
    calls `refit` once a step.

    Args:
        kind: See `asd.tiers.kinds`.
        upper: First threshold of the published rule on max², whose root bounds the margins.

    Attributes:
        version: Counts the changes of the margins.
    """

    def __init__(self, kind: Kind, upper: float) -> None:
        highest = log2(upper) / 2
        self.envelope = tuple(Tail(lowest, highest) for lowest in kind.envelope)
        self.version = 0
        self.deviations = (
            Tail(kind.deviations, WIDEST_DEVIATIONS * kind.deviations) if kind.deviations is not None else None
        )

    def refit(self) -> None:
        """Brings all margins up to date."""
        before = self._margins()
        for tail in self._all():
            tail.refit()
        self.version += self._margins() != before

    def _margins(self) -> list[float]:
        return [tail.margin for tail in self._all()]

    def state(self) -> list[dict[str, Any]]:
        """What `restore` takes; ready for JSON."""
        return [tail.state() for tail in self._all()]

    def restore(self, state: object) -> None:
        """Continues from a saved state.

        Raises:
            StateError: It was not saved by margins of this kind. The tails are then as they were.
        """
        tails = self._all()
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
        self.version += 1

    def _all(self) -> list[Tail]:
        return [*self.envelope, *([self.deviations] if self.deviations is not None else [])]

"""How far healthy values go: a margin fitted to the largest distances that were seen."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from math import inf, log, sqrt
from typing import Any

from asd.rules.base import saved_count, saved_keys, saved_number, saved_numbers, wrong_state
from asd.rules.readings.kinds import Kind

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


class Margin:
    """A margin that one healthy step in 100,000 exceeds, if distances fall off exponentially.

    Of each step the largest distance of all sites of a kind counts, for what sends one of them far up, such as an
    unusual batch, sends many. Of these the k largest but one are looked at, an eighth of all, from 8 to 64. With u the
    smallest of them, beta their mean excess over u and n steps seen, the margin is

        u + beta * (1 + 2 / sqrt(k)) * ln((k - 1) / (n * 1e-5))

    or half a bit above the largest of all, which is as far as one unusual batch widens it, between `kind.envelope` and
    `WIDEST`; `kind.first` until n is 16. The second factor covers what so few say about beta.

    Args:
        kind: Gives the smallest margin and the first one.

    Attributes:
        bits: In force; it changes in `refit` only, so that all sites of a step are judged alike.
    """

    def __init__(self, kind: Kind) -> None:
        self._lowest = kind.envelope
        self._largest: list[float] = []
        self._count = 0
        self._pending = -inf  # the largest healthy distance of the running step
        self.bits = max(kind.first, kind.envelope)

    def add(self, distance: float) -> None:
        """Takes in how far a healthy value was above what growth explains; `-inf` for nothing."""
        self._pending = max(self._pending, distance)

    def refit(self) -> None:
        """Ends a step: brings the margin up to date."""
        distance, self._pending = self._pending, -inf
        if distance == -inf:
            return
        self._count += 1
        insort(self._largest, distance)
        if self._count > KEPT:
            del self._largest[0]
        if self._count < FIT_FROM:
            return
        k = min(max(self._count // 8, FEWEST), KEPT)
        *rest, largest = self._largest[-k:]
        fitted = exceeded_by(rest, self._count, ALPHA, widen=1 + 2 / sqrt(k))
        self.bits = min(max(fitted, largest + 0.5, self._lowest), WIDEST)

    def state(self) -> dict[str, Any]:
        """The kept distances, the count of all, and the margin in force."""
        return {"largest": list(self._largest), "count": self._count, "margin": self.bits}

    def restore(self, state: object) -> None:
        """Continues from a saved state.

        Raises:
            StateError: It can't have been saved by a margin of this kind. This one is then as it was.
        """
        what = "a fitted margin"
        values = saved_keys(what, state, ("largest", "count", "margin"))
        count = saved_count(what, "count", values["count"])
        largest = sorted(saved_numbers(what, "largest", values["largest"], min(count, KEPT)))
        margin = saved_number(what, "margin", values["margin"])
        if not self._lowest <= margin <= WIDEST:
            raise wrong_state(what, "margin", margin, f"a number from {self._lowest:g} to {WIDEST:g}")
        self._largest, self._count, self.bits = largest, count, margin

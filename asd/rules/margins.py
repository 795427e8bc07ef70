"""Margin of healthy values: fitted to the largest distances seen so far."""

from bisect import insort
from collections.abc import Sequence
from math import inf, log, sqrt
from typing import Any

from asd.rules.base import saved_count, saved_keys, saved_number, saved_numbers, wrong_state
from asd.rules.kinds import Kind

ALPHA = 1e-5  # share of healthy steps with a first-level alarm that a margin allows for
KEPT = 64
FEWEST = 8
ENOUGH = 10 * KEPT  # number of values whose largest 64 are a tail
FIT_FROM = 16  # steps before a fit: fewer are not enough to predict the largest
LOOK = 0.25  # bits of the tightest threshold of a rerun
WIDEST = 10.0  # bits: the root of a million, the factor of the published rules on squares


def exceeded_by(largest: Sequence[float], count: int, alpha: float, *, widen: float = 1.0) -> float:
    """Returns the distance that a share `alpha` of all distances exceeds, if they fall off exponentially.

    Args:
        largest: Largest distances seen, at least one.
        count: Number of distances seen.
        alpha: Share above 0.
        widen: Factor on the mean excess; 1 for the best estimate.
    """
    u = min(largest)
    beta = (sum(largest) / len(largest) - u) * widen
    return u + beta * log(len(largest) / (count * alpha))


class Margin:
    """A margin that one healthy step in 100,000 exceeds, if distances fall off exponentially.

    Per step the largest distance of all sites of a kind counts. A cause that sends one of them far up, such as an
    unusual batch, sends many. The k largest but one of these are used, an eighth of all, from 8 to 64. With u the
    smallest of them, beta their mean excess over u and n steps seen, the margin is

        u + beta * (1 + 2 / sqrt(k)) * ln((k - 1) / (n * 1e-5))

    or half a bit above the largest of all, which is as far as one unusual batch widens it, between `kind.envelope` and
    `WIDEST`; `kind.first` until n is 16. The second factor covers the uncertainty of beta.

    Args:
        kind: Has the smallest margin and the first one.
    """

    def __init__(self, kind: Kind) -> None:
        self._lowest = kind.envelope
        self._largest: list[float] = []
        self._count = 0
        self._pending = -inf  # the largest healthy distance of the running step
        # current margin; only `refit` changes it, so that all sites of a step are judged alike
        self.bits = max(kind.first, kind.envelope)
        self.look = inf  # distance from which a value gets a second look; at most `bits` counts

    def add(self, distance: float) -> None:
        """Adds the distance of a healthy value above the ceiling of growth; `-inf` for no value."""
        self._pending = max(self._pending, distance)

    def refit(self) -> None:
        """Ends a step: updates the margin."""
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

    def exceeded(self, share: float) -> float:
        """Returns the distance that a share of the healthy steps exceeds; infinite before there are enough."""
        if self._count < FIT_FROM:
            return inf
        k = min(max(self._count // 8, FEWEST), KEPT)
        return max(exceeded_by(self._largest[-k:], self._count, share), LOOK)

    def state(self) -> dict[str, Any]:
        """Returns the kept distances, the count of all, and the current margin."""
        return {"largest": list(self._largest), "count": self._count, "margin": self.bits}

    def restore(self, state: object) -> None:
        """Continues from a saved state; a StateError leaves the margin unchanged."""
        what = "a fitted margin"
        values = saved_keys(what, state, ("largest", "count", "margin"))
        count = saved_count(what, "count", values["count"])
        largest = sorted(saved_numbers(what, "largest", values["largest"], min(count, KEPT)))
        margin = saved_number(what, "margin", values["margin"])
        if not self._lowest <= margin <= WIDEST:
            raise wrong_state(what, "margin", margin, f"a number from {self._lowest:g} to {WIDEST:g}")
        self._largest, self._count, self.bits = largest, count, margin

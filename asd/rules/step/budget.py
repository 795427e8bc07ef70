"""Shares out what detection may cost of a step: the parts that can look at less get what the others leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import ceil, log2
from statistics import median
from typing import Final, NamedTuple

__all__ = ["PLACES", "Allocation", "TimeBudget", "turns_of"]

PLACES: Final = "places"
"""What looks at every checked place in every step; it costs what it costs, and comes first."""
_LEAST: Final = {"state": 1 / 16, "checksum": 1 / 64}
"""The parts that can look at less, with the share of their work that is done in any case.

The one that finds most harmful faults for its time comes first: hashes of weights and moments cost little, and such
faults last.
"""
_LEAST_COST: Final = {"state": 0.01, "checksum": 0.005}
"""Of a step: what costs a part no more is done in any case too."""
_RECENT = 33
"""Steps of which the usual one counts: a compilation, an evaluation or a saved checkpoint is none."""
_STEADY = 1.25
"""What a part does is changed when it is off by more than this factor, for every measurement of time is another."""


class Allocation(NamedTuple):
    """What one part has.

    Attributes:
        cost: Of the time of a step, measured or, for what was just granted, expected; 0.01 is a hundredth.
        coverage: The share of what it can look at that it looks at in a step, from 0 to 1.
    """

    cost: float
    coverage: float


class TimeBudget:
    """Shares out a share of the time of a step by what was measured.

    Args:
        share: Of the time of a step, 0 to 1. Each part does its least even if that costs more.

    Examples:
        >>> budget = TimeBudget(0.03)
        >>> budget.note(step_seconds=1.0, places_seconds=0.01)
        >>> grants = budget.share_out({"state": 0.004, "checksum": 0.16})
        >>> {part: round(grant.coverage, 3) for part, grant in grants.items()}
        {'places': 1.0, 'state': 1.0, 'checksum': 0.1}
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._steps: deque[float] = deque(maxlen=_RECENT)
        self._places: deque[float] = deque(maxlen=_RECENT)

    def note(self, *, step_seconds: float, places_seconds: float) -> None:
        """Takes the time of a step, and of what looks at every place in it."""
        self._steps.append(step_seconds)
        self._places.append(places_seconds)

    def share_out(self, prices: Mapping[str, float]) -> dict[str, Allocation]:
        """What each part may do from now on.

        Args:
            prices: Of each part the seconds that it would take to look at all it has in one step.

        Returns:
            By the name of the part; nothing before the first step.
        """
        if not self._steps or (step := median(self._steps)) <= 0:
            return {}
        taken = median(self._places)
        asking = {part: prices[part] for part in _LEAST if prices.get(part, 0.0) > 0.0}
        least = {part: min(1.0, max(_LEAST[part], _LEAST_COST[part] * step / price)) for part, price in asking.items()}
        left = self.share * step - taken - sum(price * least[part] for part, price in asking.items())
        grants = {PLACES: Allocation(taken / step, 1.0)}
        for part, price in asking.items():
            coverage = min(1.0, least[part] + max(0.0, left) / price)
            left -= (coverage - least[part]) * price
            grants[part] = Allocation(coverage * price / step, coverage)
        return grants


def turns_of(coverage: float, now: int) -> int:
    """In how many steps all is looked at once: a power of two, so that the turns of ranks with other turns meet.

    Args:
        coverage: Above 0, at most 1.
        now: In how many it is at present; it stays where it is not off by much.

    >>> turns_of(0.1, 1), turns_of(0.07, 8), turns_of(0.12, 8)
    (16, 16, 8)
    """
    wanted = 1 / coverage
    return now if now / 2 / _STEADY < wanted <= now * _STEADY else 2 ** max(0, ceil(log2(wanted)))

"""What reading weights and moments may cost of a step: it gets what looking at every checked place leaves."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final, NamedTuple

__all__ = ["PLACES", "STATE", "Allocation", "TimeBudget"]

PLACES: Final = "places"
"""What looks at every checked place in every step; it costs what it costs, and comes first."""
STATE: Final = "state"
"""What reads weights and moments, and can do so in fewer steps."""
_LEAST: Final = 1 / 16
"""The share of the state that is read in a step in any case."""
_LEAST_COST: Final = 0.01
"""Of a step: what costs no more is done in any case too."""
_RECENT = 33
"""Steps of which the usual one counts: a compilation, an evaluation or a saved checkpoint is none."""


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
        share: Of the time of a step, 0 to 1. The state is read at least so often as `Allocation.coverage` 1/16, even if
            that costs more.

    Examples:
        >>> budget = TimeBudget(0.03)
        >>> budget.note(step_seconds=1.0, places_seconds=0.01)
        >>> grants = budget.share_out(0.04)
        >>> {part: round(grant.coverage, 3) for part, grant in grants.items()}
        {'places': 1.0, 'state': 0.5}
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._steps: deque[float] = deque(maxlen=_RECENT)
        self._places: deque[float] = deque(maxlen=_RECENT)

    def note(self, *, step_seconds: float, places_seconds: float) -> None:
        """Takes the time of a step, and of what looks at every place in it."""
        self._steps.append(step_seconds)
        self._places.append(places_seconds)

    def share_out(self, price: float) -> dict[str, Allocation]:
        """What each part may do from now on.

        Args:
            price: The seconds that it takes to read all of the state; 0 if nobody knows.

        Returns:
            By the name of the part; nothing before the first step.
        """
        if not self._steps or (step := median(self._steps)) <= 0:
            return {}
        taken = median(self._places)
        grants = {PLACES: Allocation(taken / step, 1.0)}
        if price > 0:
            least = min(1.0, max(_LEAST, _LEAST_COST * step / price))
            coverage = min(1.0, max(least, (self.share * step - taken) / price))
            grants[STATE] = Allocation(coverage * price / step, coverage)
        return grants

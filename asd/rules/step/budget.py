"""What detection takes of a step, measured, beside what it may take."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final, NamedTuple

__all__ = ["PLACES", "STATE", "Allocation", "TimeBudget"]

PLACES: Final = "places"
"""What looks at every checked place in every step."""
STATE: Final = "state"
"""What reads weights and moments, in one step of so many."""
_RECENT = 33
"""Steps of which the usual one counts: a compilation, an evaluation or a saved checkpoint is none."""


class Allocation(NamedTuple):
    """What one part takes.

    Attributes:
        cost: Of the time of a step, measured; 0.01 is a hundredth.
        coverage: The share of what it can look at that it looks at in a step, from 0 to 1.
    """

    cost: float
    coverage: float


class TimeBudget:
    """Measures the shares of a step's time; what is looked at follows from none of them.

    Args:
        share: Of the time of a step that detection may take, 0 to 1.

    Examples:
        >>> budget = TimeBudget(0.03)
        >>> budget.note(step_seconds=1.0, places_seconds=0.01)
        >>> {part: round(cost, 4) for part, (cost, _) in budget.taken(state_seconds=0.16, every=16).items()}
        {'places': 0.01, 'state': 0.01}
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._steps: deque[float] = deque(maxlen=_RECENT)
        self._places: deque[float] = deque(maxlen=_RECENT)

    def note(self, *, step_seconds: float, places_seconds: float) -> None:
        """Takes the time of a step, and of what looks at every place in it."""
        self._steps.append(step_seconds)
        self._places.append(places_seconds)

    def taken(self, *, state_seconds: float, every: int) -> dict[str, Allocation]:
        """What each part takes, by its name; nothing before the first step.

        Args:
            state_seconds: Of reading all of the state once; 0 if nobody knows.
            every: Steps from one such reading to the next.
        """
        if not self._steps or (step := median(self._steps)) <= 0:
            return {}
        found = {PLACES: Allocation(median(self._places) / step, 1.0)}
        if state_seconds > 0:
            found[STATE] = Allocation(state_seconds / every / step, 1 / every)
        return found

"""Bounds on the weights and on the state of the optimizer."""

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from asd.rules.base import saved_count, saved_keys, saved_number
from asd.verdict import Level, Verdict

WARM = 20  # steps before the bound has its final width
WARM_UP_FACTOR = 4.0
FACTOR = 2.0  # weights of clean runs reached 1.09 after the warm-up
GROWTH = 1.1  # healthy growth per step without a reading: embeddings and recurrent cells with momentum reached 1.09
UNKNOWN_FACTOR = 1000.0
"""For moments with unknown gradients; second moments are squares and have its square. Clean runs reached 240."""
_MOST_STEPS = 64  # most steps without a reading for which healthy growth is allowed
ROUNDING = 1.001
WEIGHT = "max_weight"
MINIMUM = "min_"  # prefix of names of smallest values, which must not be negative
MAXIMUM = "max_"


class StateBound:
    """Rule that flags weights or optimizer moments that are larger than they can have become.

    Corruption of a moment or a weight persists: it does more harm than any corrupted gradient, and first shows in no
    gradient. The limit of a value, such as the largest abs(weight) over all tensors, is a multiple of its own running
    maximum: 4 times in the first 20 steps, 2 times later, and 1.1 times more for each step without a reading.

    Moments follow the gradients, which may become large, so a moment may also be as large as these make it. No step of
    Adam makes a second moment larger than v + (1 - beta2) * max(g)**2, nor a first one larger than m + max(g). Callers
    that know the gradients pass these growths, which need no warm-up. Else moments may become a thousand times, second
    moments a million times their maximum.

    A name that begins with `min_` is a smallest value, which must not be negative, as a second moment. `min_x` marks
    `max_x` as a second moment. Everything must be finite.

    A finite value is learned even if it is flagged, since it persists, and one alarm is enough.

    Attributes:
        name: Name of the value in the last verdict.

    Examples:
        >>> bound = StateBound()
        >>> for step in range(30):
        ...     verdict = bound.update({"max_weight": 1.0 + step / 100, "min_second_moment": 0.0})
        >>> bound.update({"max_weight": 64.0, "min_second_moment": 0.0}).reason
        'state: max_weight more than 2 times its largest so far'
        >>> bound.update({"max_weight": 1.3, "min_second_moment": -1e-9}).reason
        'state: min_second_moment is negative'
    """

    def __init__(self) -> None:
        self.name = ""
        self._largest: dict[str, float] = {}
        self._updates = 0
        self._last: dict[str, float] = {}

    def update(
        self, values: Mapping[str, float], growth: Mapping[str, float] | None = None, *, steps: int = 1
    ) -> Verdict:
        """Judges the state after a step.

        Args:
            values: Values by name; from 0 on, any number for names that begin with `min_`. Names may differ by step.
            growth: By name, the most that gradients since the last update can have added; None if unknown.
            steps: Steps of the training since the last update, at least 1.

        Returns:
            The verdict on the worst value: the first that is not finite, else the largest multiple of its limit.
        """
        limits = {name: self._limit(name, values, growth, steps) for name in values}
        worst, score = "", -inf
        for name, value in values.items():
            found = _score(name, value, limits[name])
            if found > score or worst == "":
                worst, score = name, found
        reason = self._why(worst, values, limits[worst]) if score > 1.0 else ""
        self._learn(values, steps)
        self.name = worst
        if worst == "":
            return Verdict(Level.NORMAL, "", 0.0, inf)
        level = Level.ERROR if score > 1.0 else Level.NORMAL
        return Verdict(level, reason and f"state: {worst} {reason}", values[worst], limits[worst])

    def state(self) -> dict[str, Any]:
        """Returns the running maxima, the last values and a count, for JSON."""
        return {"largest": dict(self._largest), "last": dict(self._last), "updates": self._updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state, exactly as if it had never stopped.

        Raises:
            StateError: The state is damaged. The bound is then unchanged.
        """
        what = "detector state"
        values = saved_keys(what, state, ("largest", "last", "updates"))
        largest, last = (_checked(what, values[key]) for key in ("largest", "last"))
        updates = saved_count(what, "updates", values["updates"])
        self._largest, self._last, self._updates = largest, last, updates

    def _factor(self, name: str, values: Mapping[str, float], growth: Mapping[str, float] | None, steps: int) -> float:
        if growth is None and name != WEIGHT:
            is_square = MINIMUM + name.removeprefix(MAXIMUM) in values
            return UNKNOWN_FACTOR * UNKNOWN_FACTOR if is_square else UNKNOWN_FACTOR
        factor = FACTOR if self._updates >= WARM else WARM_UP_FACTOR
        return factor * GROWTH ** min(steps - 1, _MOST_STEPS)

    def _limit(self, name: str, values: Mapping[str, float], growth: Mapping[str, float] | None, steps: int) -> float:
        """Returns the largest value that is not an error."""
        largest = self._largest.get(name, 0.0)
        if largest <= 0.0:
            return inf
        limit = self._factor(name, values, growth, steps) * largest
        if growth is not None and name in growth:
            limit = max(limit, ROUNDING * (self._last[name] + growth[name]))
        return limit

    def _why(self, name: str, values: Mapping[str, float], limit: float) -> str:
        if not isfinite(values[name]):
            return "not finite"
        if name.startswith(MINIMUM):
            return "is negative"
        return f"more than {limit / self._largest[name]:.3g} times its largest so far"

    def _learn(self, values: Mapping[str, float], steps: int) -> None:
        self._updates += steps
        for name, value in values.items():
            if isfinite(value) and not name.startswith(MINIMUM):
                self._largest[name] = max(self._largest.get(name, 0.0), value)
                self._last[name] = value


def _checked(what: str, numbers: object) -> dict[str, float]:
    known = saved_keys(what, numbers, numbers if isinstance(numbers, Mapping) else ())
    return {str(name): saved_number(what, str(name), value, 0) for name, value in known.items()}


def _score(name: str, value: float, limit: float) -> float:
    """Returns the value as a multiple of its limit; above 1 is an error."""
    if not isfinite(value):
        return inf
    if name.startswith(MINIMUM):
        return inf if value < 0.0 else 0.0
    if limit == inf:
        return 0.0
    return value / limit if value <= limit else max(value / limit, 1.0000000000000002)

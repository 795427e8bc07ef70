"""The fourth tier: bounds on the weights and on what the optimizer remembers."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from asd.errors import ConfigError
from asd.tiers.saved import check_count, check_keys, check_number
from asd.verdict import Level, Verdict

__all__ = ["StateBound"]

WARM = 20
"""Steps before the bound has its final width."""
WARM_UP_FACTOR = 4.0
"""Clean runs came to 3.44 in the warm-up."""
FACTOR = 2.0
"""Clean runs came to 1.09 after it."""
FREEZE = 20
"""Alarms in a row after which a new level is learned."""
MINIMUM = "min_"
"""Prefix of the names whose value is a smallest one, which must not be negative."""


class StateBound:
    """Flags weights or moments of the optimizer that are suddenly larger than they ever were.

    Corruption of a moment or a weight stays: it does more harm than any corrupted gradient, and shows in no gradient at
    first. Each named value, such as the largest abs(weight) over all tensors, may be at most 4 times its own running
    maximum in the first 20 steps and 2 times after that. A name that begins with `min_` stands for a smallest value,
    which must not be negative: a second moment never is. Everything must be finite.

    It learns from no value that it flags; after 20 steps in a row that are flagged it learns the bound instead.

    Args:
        every: Steps from one update to the next, for the warm-up is counted in steps.

    Attributes:
        name: The value that the last verdict is about.

    Raises:
        ConfigError: `every` is not valid.

    Examples:
        >>> bound = StateBound()
        >>> for step in range(30):
        ...     verdict = bound.update({"max_weight": 1.0 + step / 100, "min_second_moment": 0.0})
        >>> bound.update({"max_weight": 64.0, "min_second_moment": 0.0}).reason
        'state: max_weight more than 2 times its largest so far'
        >>> bound.update({"max_weight": 1.3, "min_second_moment": -1e-9}).reason
        'state: min_second_moment is negative'
    """

    def __init__(self, every: int = 1) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigError("every", every, "a number of steps of at least 1")
        self.every = every
        self.name = ""
        self._largest: dict[str, float] = {}
        self._updates = 0
        self._errors = 0  # in a row

    def update(self, values: Mapping[str, float]) -> Verdict:
        """Judges the state after a step.

        Args:
            values: By name; from 0 on, those that begin with `min_` any number. The names may be others in each step.

        Returns:
            The verdict about the worst value: the first that is not finite, else the one that is most times its limit.
        """
        limits = self.limit()
        worst, score = "", -inf
        for name, value in values.items():
            found = _score(name, value, limits.get(name, inf))
            if found > score or worst == "":
                worst, score = name, found
        is_error = score > 1.0
        self._learn(values, limits, is_error=is_error)
        self.name = worst
        if worst == "":
            return Verdict(Level.NORMAL, "", 0.0, inf)
        value, limit = values[worst], limits.get(worst, inf)
        if not is_error:
            return Verdict(Level.NORMAL, "", value, limit)
        return Verdict(Level.ERROR, f"state: {worst} {self._why(worst, value)}", value, limit)

    def limit(self) -> dict[str, float]:
        """The largest value of each known name that is not an error next."""
        factor = self._factor()
        return {name: factor * largest if largest > 0.0 else inf for name, largest in self._largest.items()}

    def state(self) -> dict[str, Any]:
        """The running maxima and two counts, ready for JSON."""
        return {"largest": dict(self._largest), "updates": self._updates, "errors": self._errors}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state, exactly as if it had never stopped.

        Raises:
            StateError: It is damaged. The bound is then as it was.
        """
        what = "tier state"
        values = check_keys(what, state, ("largest", "updates", "errors"))
        largest = values["largest"]
        known = check_keys(what, largest, largest if isinstance(largest, Mapping) else ())
        checked = {str(name): check_number(what, str(name), value, 0) for name, value in known.items()}
        updates, errors = (check_count(what, key, values[key]) for key in ("updates", "errors"))
        self._largest, self._updates, self._errors = checked, updates, errors

    def _factor(self) -> float:
        return FACTOR if self._updates * self.every >= WARM else WARM_UP_FACTOR

    def _why(self, name: str, value: float) -> str:
        if not isfinite(value):
            return "not finite"
        return "is negative" if name.startswith(MINIMUM) else f"more than {self._factor():g} times its largest so far"

    def _learn(self, values: Mapping[str, float], limits: Mapping[str, float], *, is_error: bool) -> None:
        self._errors = self._errors + 1 if is_error else 0
        if is_error and self._errors <= FREEZE:
            return
        self._updates += 1
        for name, value in values.items():
            if isfinite(value) and not name.startswith(MINIMUM):
                self._largest[name] = max(self._largest.get(name, 0.0), min(value, limits.get(name, inf)))


def _score(name: str, value: float, limit: float) -> float:
    """How many times its limit a value is; above 1 is an error."""
    if not isfinite(value):
        return inf
    if name.startswith(MINIMUM):
        return inf if value < 0.0 else 0.0
    if limit == inf:
        return 0.0
    return value / limit if value <= limit else max(value / limit, 1.0000000000000002)

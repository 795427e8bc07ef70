"""Bounds on a weight, on what its optimizer keeps for it, and on what an update changes."""

from collections.abc import Mapping
from math import inf, isfinite, log2
from typing import Any

from asd.rules.base import saved_count, saved_keys, saved_number
from asd.verdict import Level, Verdict

WARM = 20  # steps before the bound has its final width
WARM_UP_FACTOR = 4.0
FACTOR = 2.0  # weights of clean runs reached 1.09 after the warm-up
KEPT = 0.97  # share of the recent largest that is kept from one reading to the next, or from one gradient
ROUNDING = 1.001
FALL = 0.1  # bits by which a norm must fall, and four times its largest fall: an eighth of a tensor becomes zero
FALLS_FROM = 64  # steps
UPDATE = "max_update"
MINIMUM = "min_"  # prefix of names of smallest values, which must not be negative
NORM = "l2_"  # prefix of names of norms, which must not fall suddenly


class StateBound:
    """Rule that flags a tensor of weights or of optimizer state with values that it cannot have reached.

    Corruption of a moment or a weight persists: it does more harm than any corrupted gradient, and first shows in no
    gradient. The limit of a value, such as the largest abs(weight) of the tensor, is a multiple of its own recent
    largest: 4 times in the first 20 steps, 2 times later. It may also have grown by what gradients or updates have
    added. No step of Adam makes a second moment larger than v + (1 - beta2) * max(g)**2, nor a first one larger than
    m + max(g). Callers that know pass these growths, which need no warm-up; a value without one has no limit.

    `max_update`, the largest change of a weight in a step, may be twice that multiple, or its growth. A name that
    begins with `min_` is a smallest value, which must not be negative, as a second moment. `l2_x` is a norm: a fall
    that its tensor never showed is a warning. Everything must be finite.

    A finite value is learned even if it is flagged, since it persists, and one alarm is enough.
    """

    def __init__(self) -> None:
        self._largest: dict[str, float] = {}
        self._updates = 0
        self._last: dict[str, float] = {}
        self._falls: dict[str, float] = {}  # of norms, in bits, the largest

    def update(
        self, values: Mapping[str, float], growth: Mapping[str, float] | None = None, *, steps: int = 1
    ) -> Verdict:
        """Judges the state after a step.

        Args:
            values: At least one, by name; from 0 on except for `min_`.
            growth: By name, the most that can have been added since the last update; a missing one means no limit.
            steps: Steps of the training since the last update, at least 1.

        Returns:
            The verdict on the worst value: the first that is not finite, else the largest multiple of its limit.
        """
        limits = {name: self._limit(name, growth or {}) for name in values}
        scores = {name: _score(name, value, limits[name]) for name, value in values.items()}
        worst = max(scores, key=scores.__getitem__)
        level, limit, words = Level.NORMAL, limits[worst], ""
        if scores[worst] > 1.0:
            level, words = Level.ERROR, self._why(worst, values, limit)
        elif fallen := next((name for name, value in values.items() if value < self._least(name)), ""):
            worst, level, limit = fallen, Level.WARNING, self._least(fallen)
            words = f"fell from {self._last[fallen]:.3g} to {values[fallen]:.3g}, as by a block of zeros"
        self._learn(values, steps)
        kind = "update" if worst == UPDATE else "state"
        return Verdict(level, words and f"{kind}: {worst} {words}", values[worst], limit)

    def state(self) -> dict[str, Any]:
        """Returns the recent largest, the last values, the falls of norms and a count, for JSON."""
        kept = {"largest": self._largest, "last": self._last, "falls": self._falls}
        return {name: dict(each) for name, each in kept.items()} | {"updates": self._updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state, exactly as if it had never stopped.

        Raises:
            StateError: The state is damaged. The bound is then unchanged.
        """
        what = "detector state"
        values = saved_keys(what, state, ("largest", "last", "falls", "updates"))
        largest, last, falls = (_checked(what, values[key]) for key in ("largest", "last", "falls"))
        updates = saved_count(what, "updates", values["updates"])
        self._largest, self._last, self._falls, self._updates = largest, last, falls, updates

    def _limit(self, name: str, growth: Mapping[str, float]) -> float:
        """Returns the largest value that is not an error."""
        largest = self._largest.get(name, 0.0)
        if largest <= 0.0 or name not in growth:  # a moment may rest for long, and then grow by any factor
            return inf
        limit = largest * (FACTOR if self._updates >= WARM else WARM_UP_FACTOR)
        if name == UPDATE:
            return max(2 * limit, growth[name])
        return max(limit, ROUNDING * (self._last[name] + growth[name]))

    def _least(self, name: str) -> float:
        """Returns the smallest norm that is no warning."""
        known = name in self._falls and self._updates >= FALLS_FROM
        return self._last[name] * 2.0 ** -max(FALL, 4 * self._falls[name]) if known else 0.0

    def _why(self, name: str, values: Mapping[str, float], limit: float) -> str:
        if not isfinite(values[name]):
            return "not finite"
        if name.startswith(MINIMUM):
            return "is negative"
        return f"more than {limit / self._largest[name]:.3g} times its recent largest"

    def _learn(self, values: Mapping[str, float], steps: int) -> None:
        self._updates += steps
        for name, value in values.items():
            if isfinite(value) and not name.startswith(MINIMUM):
                if name.startswith(NORM) and value > 0.0:
                    fall = max(log2(self._last.get(name, value) / value or 1.0), 0.0)
                    self._falls[name] = max(fall, self._falls.get(name, 0.0))
                self._largest[name] = max(KEPT * self._largest.get(name, 0.0), value)
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
    return value / limit if value <= limit else max(value / limit, 1.0000000000000002)

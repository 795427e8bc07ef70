"""Tier `ranks`: the ranks that hold the same part of the network against one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, log2
from statistics import median
from typing import Any

from asd.errors import ConfigError, StateError
from asd.rules.base import saved_count, saved_keys, saved_number, saved_numbers
from asd.rules.readings.kinds import kind_of
from asd.rules.trace import DEVIATION_FLOOR, Trace
from asd.verdict import Level, Verdict

__all__ = ["Ranks"]

MARGIN = 3.3
"""Bits above the envelope of healthy differences. Clean runs came to 2.8, and 3.23 in the warm-up."""
FIRST = 5
"""Steps that are only learned."""
DECAY = 0.01
FREEZE = 20
"""Alarms in a row after which a new difference is learned, by the margin a step."""
WINDOW = 10
"""Steps of the mean that shows a small lasting difference."""
LASTING = 2.5
"""How many times its largest healthy value that mean may become."""
LASTING_FLOOR = 0.25
"""The smallest such mean that counts as its largest healthy value, in bits."""
LASTING_FROM = 100
"""Steps before that mean is judged."""
DEVIATIONS = 6.1
"""How far above the mean of the medians a rank must be, in deviations: half of what clean runs stay below."""


class Ranks:
    """Flags the rank whose tensor differs from what the others see at the same site in the same step.

    Each rank is compared with the median x of the others, in bits: c = x_rank - median. Healthy ranks differ too, by
    as much as the envelope of c has learned. A rank is

    * an error if c is above that envelope by more than 3.3 bits, and the rank is 6.1 deviations above the mean of the
      medians; or if it is not finite and most others are;
    * a warning if it is as far below; or if the mean of c over 10 steps is 2.5 times what healthy ranks came to.

    Of an even number of others there are two medians; a comparison takes the nearer one, because one of two others may
    be the faulty one, and a healthy rank must not inherit half of that. So one bad rank of three or more never drags a
    healthy one along. Of two ranks an alarm is about both: nobody can tell which one is at fault. A single rank is
    never flagged. Only ranks that hold the same part of the network may be compared, before their gradients are summed.

    Gradients are not compared where one rank has nothing but zeros: no data reached it there, as an expert that got no
    tokens.

    The first 5 steps are only learned. It learns from no step in which a rank is an error; after 20 such steps in a row
    it learns its limits in their place.

    Args:
        kind: `B` or `W`.
        size: Number of ranks.

    Raises:
        ConfigError: An argument is not valid.

    Examples:
        >>> ranks = Ranks("B", 4)
        >>> for step in range(30):
        ...     verdicts = ranks.update([1.0, 1.1, 0.9, 1.05])
        >>> [verdict.level.name for verdict in ranks.update([1.0, 1.1, 32.0, 1.05])]
        ['NORMAL', 'NORMAL', 'ERROR', 'NORMAL']
    """

    def __init__(self, kind: str, size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigError("size", size, "a number of ranks of at least 1")
        self.kind = kind_of(kind)
        self.size = size
        self._differences = _Differences(size)
        self._errors = 0  # in a row

    def update(self, values: Sequence[float]) -> list[Verdict]:
        """Judges one step.

        Args:
            values: What each rank saw, by rank.

        Returns:
            A verdict for each rank.

        Raises:
            ConfigError: There are not as many values as ranks.
        """
        if len(values) != self.size:
            raise ConfigError("values", len(values), f"one value for each of {self.size} ranks")
        finite = list(map(isfinite, values))
        if not all(finite):
            return [self._judge_not_finite(each, sum(finite)) for each in values]
        if self.size == 1 or not all(values):
            return [Verdict(Level.NORMAL, "", each, inf) for each in values]
        verdicts = [
            Verdict(level, f"{self.kind.name}: {reason}" if reason else "", value, limit)
            for value, (level, reason, limit) in zip(values, self._differences.judge(values), strict=True)
        ]
        self._learn(is_error=any(verdict.level is Level.ERROR for verdict in verdicts))
        return _both(verdicts) if self.size == 2 else verdicts

    def state(self) -> dict[str, Any]:
        """Everything it remembers, ready for JSON."""
        return {"differences": self._differences.state(), "errors": self._errors}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state, exactly as if it had never stopped.

        Raises:
            StateError: It was not saved by as many ranks. This one is then as it was.
        """
        values = saved_keys("tier ranks", state, self.state())
        errors = saved_count("tier ranks", "errors", values["errors"])
        self._differences = _Differences.of(self.size, "tier ranks", values["differences"])
        self._errors = errors

    def _learn(self, *, is_error: bool) -> None:
        self._errors = self._errors + 1 if is_error else 0
        if not is_error or self._errors > FREEZE:
            self._differences.learn()

    def _judge_not_finite(self, value: float, finite: int) -> Verdict:
        if isfinite(value):
            return Verdict(Level.NORMAL, "", value, inf)
        alone = 2 * finite > self.size
        level = Level.ERROR if alone else Level.WARNING
        reason = "not finite, where most ranks are" if alone else "not finite, as on other ranks"
        return Verdict(level, f"{self.kind.name}: {reason}", value, inf)


class _Differences:
    """How far healthy ranks are apart."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.high = self.low = 0.0  # envelopes of the distance above and below the median of the others
        self.center = Trace()  # of the median of all
        self.window: list[list[float]] = []  # distances from the nearer median, by rank; the latter half is judged
        self.lasting = LASTING_FLOOR
        self.lasted = 0  # steps in a row in which a rank was above
        self._judged: tuple[list[float], list[float], list[float], bool] = ([], [], [], False)  # of the last step

    def judge(self, sizes: Sequence[float]) -> list[tuple[Level, str, float]]:
        """Level, reason and limit of each rank."""
        x = list(map(log2, sizes))
        above, below, middles = _distances(x)
        nearer = [min(up, -down, key=abs) for up, down in zip(above, below, strict=True)]
        self.window = [*self.window[1 - 2 * WINDOW :], nearer]
        lasts = _means(self.window[-WINDOW:]) if self.center.n >= LASTING_FROM else [0.0] * self.size
        lasting = [each > LASTING * self.lasting for each in lasts]
        self._judged = x, above, below, any(lasting)
        found = [(Level.NORMAL, "", inf)] * self.size
        far, wide = self.high + MARGIN, self.center.mu + DEVIATIONS * self._dev()
        calm = not any(lasting) and max(above) <= far and max(below) <= self.low + MARGIN
        if calm or self.center.n < FIRST:
            return found
        for rank, middle in enumerate(middles):
            bits = max(middle + far, wide)
            limit = inf if bits > 1023 else 2.0**bits
            z = self.center.deviations(x[rank])
            if above[rank] > far and z > DEVIATIONS:
                found[rank] = (Level.ERROR, f"{above[rank]:.1f} bits above the median of the other ranks", limit)
            elif below[rank] > self.low + MARGIN and z < -DEVIATIONS:
                found[rank] = (Level.WARNING, f"{below[rank]:.1f} bits below the median of the other ranks", limit)
            elif lasting[rank]:
                reason = f"above the other ranks by {lasts[rank]:.2g} bits for {WINDOW} steps"
                found[rank] = (Level.WARNING, reason, limit)
        return found

    def learn(self) -> None:
        """Takes in the step that was judged, of its differences no more than what is no error."""
        x, above, below, lasts = self._judged
        first = self.center.n < FIRST
        self.high = max(min(max(above), inf if first else self.high + MARGIN), self.high - DECAY, 0.0)
        self.low = max(min(max(below), inf if first else self.low + MARGIN), self.low - DECAY, 0.0)
        distance = median(abs(each - self.center.mu) for each in x)
        self.lasted = self.lasted + 1 if lasts else 0
        # Of what is long past only: a difference that grows must not become healthy before it is judged.
        if len(self.window) == 2 * WINDOW and (not self.lasted or self.lasted > FREEZE):
            self.lasting = max(self.lasting, *_means(self.window[:WINDOW]))
        self.center.learn(median(x), distance)

    def _dev(self) -> float:
        return max(self.center.dev, DEVIATION_FLOOR)

    def state(self) -> dict[str, Any]:
        return {
            "high": self.high,
            "low": self.low,
            "center": self.center.state(),
            "window": [*map(list, self.window)],
            "lasting": self.lasting,
            "lasted": self.lasted,
        }

    @classmethod
    def of(cls, size: int, what: str, state: object) -> _Differences:
        new = cls(size)
        values = saved_keys(what, state, new.state())
        new.high, new.low = (saved_number(what, key, values[key], 0) for key in ("high", "low"))
        new.lasting = saved_number(what, "lasting", values["lasting"], LASTING_FLOOR)
        new.center = Trace.of(what, values["center"])
        new.lasted = saved_count(what, "lasted", values["lasted"])
        window = values["window"]
        if not isinstance(window, list | tuple) or len(window) > 2 * WINDOW:
            raise StateError(f"State of {what}: window is not valid: a list of at most {2 * WINDOW} steps.")
        new.window = [saved_numbers(what, "window", step, size) for step in window]
        return new


def _distances(x: Sequence[float]) -> tuple[list[float], list[float], list[float]]:
    """Of each rank how far it is above the upper and below the lower median of the others, and the upper one.

    From a rank outside both, that is the nearer one.
    """
    ordered = sorted(x)
    # The middle of the others: the same places, one further for who stands before or at them himself.
    high, low = (len(x) - 1) // 2, (len(x) - 2) // 2
    below_high, from_high = ordered[high], ordered[high + 1]
    below_low, from_low = ordered[low], ordered[low + 1]
    middles = [from_high if each <= below_high else below_high for each in x]
    above = [each - middle for each, middle in zip(x, middles, strict=True)]
    below = [(from_low if each <= below_low else below_low) - each for each in x]
    return above, below, middles


def _means(window: Sequence[Sequence[float]]) -> list[float]:
    """Of each rank."""
    return [sum(steps) / WINDOW for steps in zip(*window, strict=True)]


def _both(verdicts: list[Verdict]) -> list[Verdict]:
    """Of two ranks that differ each is as far from the other."""
    worst = max(verdicts, key=lambda verdict: verdict.level)
    if worst.level is Level.NORMAL:
        return verdicts
    reason = f"{worst.reason}: of two ranks either may be at fault"
    return [Verdict(worst.level, reason, verdict.value, verdict.limit) for verdict in verdicts]

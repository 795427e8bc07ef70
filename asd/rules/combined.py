"""The vendor's fourth rule: the squared maximum and its change against its mean so far."""

from collections.abc import Mapping
from math import inf, isfinite, isinf, isnan, nextafter

from asd.rules.base import Rule, bad_state, check_number, check_state
from asd.verdict import Level, Verdict

BETA = 0.99
FIRST_VALUES = 10  # number of nonzero values that are averaged before any is judged


class Combined(Rule):
    """Rule that flags a squared maximum if both it and its change are many times its exponential mean.

    With the mean corrected for its start from zero, base := avg / (1 - 0.99**none_zero_count), a value v is

    * ignored if it is 0;
    * an error ("strike") if it is not finite, or v > t1 and abs(v - pre_value) > t1, t1 := base * upper_thresh1;
    * averaged, avg := 0.99 * avg + 0.01 * v, if it does not strike and v <= t2, t2 := base * upper_thresh2;
    * otherwise passed over: neither reported nor averaged.

    The thresholds exist after ten averaged values. There is no second level. The published behaviour is kept: after a
    NaN the change cannot be judged, so the next value is only tested for being finite. If two equal spikes follow each
    other, only the first is an error.

    So the values that strike are not one range after a spike. If pre_value > 2*t1, a value strikes above pre_value +
    t1, not around pre_value, and also from t1 up to pre_value - t1. `limit()` is the upper end: above it every value
    strikes, below it some may.

    Args:
        upper_thresh1: Multiple of the mean that the value and its change must exceed for an error, at least 3.
        upper_thresh2: Multiple of the mean up to which a value is averaged, at least 3.

    Examples:
        >>> rule = Combined()
        >>> for _ in range(12):
        ...     verdict = rule.update(1e-3)
        >>> [rule.update(value).level.name for value in (2.0, 1e-3, 1e9, 1e9, float("inf"))]
        ['NORMAL', 'NORMAL', 'ERROR', 'NORMAL', 'ERROR']
        >>> rule.state()["none_zero_count"]
        13

    References:
        MindSpore's C++ class SilentDetector (`MS_NPU_ASD_CONFIG`), from which the keys of the state are taken.
        `tests/operators/monitor/test_vendor_conformance.py` compares this rule with it.
    """

    name = "combined"
    feature = "max_square"

    def __init__(self, upper_thresh1: float = 1_000_000, upper_thresh2: float = 100) -> None:
        self.upper_thresh1 = check_number("upper_thresh1", upper_thresh1, 3, "a number of at least 3")
        self.upper_thresh2 = check_number("upper_thresh2", upper_thresh2, 3, "a number of at least 3")
        self._avg = self._pre_value = 0.0
        self._count = self._none_zero_count = 0

    def update(self, value: float) -> Verdict:
        """Judges the squared maximum of this step."""
        value = float(value)
        first, second = self._thresholds()
        limit = self._limit(first)
        level, reason = Level.NORMAL, ""
        if not isfinite(value):
            level, reason = Level.ERROR, "not finite"
        elif value == 0.0:
            pass
        elif value > first and abs(value - self._pre_value) > first:
            level, reason = Level.ERROR, f"value and its change above {self.upper_thresh1:.15g} times the mean"
        elif value <= second:
            self._none_zero_count += 1
            self._avg = self._avg * BETA + value * (1 - BETA)
        self._pre_value = value
        self._count += 1
        return Verdict(level, reason, value, limit)

    def limit(self) -> float:
        """Returns the limit above which every value strikes; see the class about values below it."""
        return self._limit(self._thresholds()[0])

    def state(self) -> dict[str, float]:
        """Returns mean `avg`, last value `pre_value`, `count` of all values, `none_zero_count` of the averaged ones."""
        counts = {"count": self._count, "none_zero_count": self._none_zero_count}
        return {"avg": self._avg, "pre_value": self._pre_value, **counts}

    def restore(self, state: Mapping[str, float]) -> None:
        """Continues from a saved state."""
        values = check_state(self, state)
        avg, count, none_zero = values["avg"], int(values["count"]), int(values["none_zero_count"])
        if not isfinite(avg):
            raise bad_state(self, "avg", avg, "a finite number")
        if none_zero > count:
            raise bad_state(self, "none_zero_count", none_zero, f"at most count, which is {count}")
        self._avg, self._pre_value, self._count, self._none_zero_count = avg, values["pre_value"], count, none_zero

    def _thresholds(self) -> tuple[float, float]:
        """Returns t1 and t2; `inf` while they do not exist, so that nothing strikes and every value is averaged."""
        if self._none_zero_count < FIRST_VALUES or self._avg == 0.0:
            return inf, inf
        correction = 1 - BETA**self._none_zero_count
        return self._avg * self.upper_thresh1 / correction, self._avg * self.upper_thresh2 / correction

    def _limit(self, first: float) -> float:
        if isnan(self._pre_value):
            return inf
        if isinf(self._pre_value):
            return first
        limit = first + max(self._pre_value, 0.0)
        # The sum is rounded, and so is the difference that update() takes: the next float may still not strike.
        above = nextafter(limit, inf)
        return above if abs(above - self._pre_value) <= first else limit

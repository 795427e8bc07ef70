"""The document's rule: two absolute thresholds on the norm and two on its jump."""

from collections.abc import Mapping
from math import inf, isfinite, nan

from asd.errors import ConfigError
from asd.rules.base import SIGMA, UPPER, Rule, bad_state, check_pair, check_state
from asd.verdict import Level, Verdict

SMALLEST_RANGE = 1 / 256  # smallest range that counts, relative to the largest value: one bfloat16 rounding step, 2**-8


class Threshold(Rule):
    r"""Rule that flags a norm that is not finite, too large, or jumped too far up.

    For the value v, the value before it `pre`, and the smallest and largest value so far:

    * jump := (v - pre) / (max - min), judged once `min_steps` values were learned;
    * first level: v is not finite, or v > upper[0], or jump > sigma[0];
    * second level: v > upper[1], or jump > sigma[1].

    This is the rule of the vendor kernel `SilentCheck` without three of its weaknesses. NaN and infinities never enter
    the state. A flagged value of either level does not enter it either, so that an outlier cannot widen the range and
    hide the next one. The range counts as at least max/256: smaller moves are bfloat16 rounding, so a constant site can
    neither divide by zero nor raise an alarm over its last bit. While all values were 0 no jump is judged.

    The price: after a permanent change of level that breaks a threshold, all further values are flagged until the state
    is reset.

    Args:
        upper: First- and second-level absolute threshold, in units of the norm. Each at least 3, first > second.
        sigma: First- and second-level jump threshold, in ranges (max - min). Each at least 3, first > second.
        min_steps: Values to learn before jumps are judged, at least 1.

    Examples:
        >>> rule = Threshold(upper=(1000, 100), sigma=(50, 5), min_steps=3)
        >>> [rule.update(value).level.name for value in (1.0, 2.0, 3.0, 2.5, 13.0, 5000.0)]
        ['NORMAL', 'NORMAL', 'NORMAL', 'NORMAL', 'WARNING', 'ERROR']
        >>> rule.update(15.0)
        Verdict(level=<Level.WARNING: 1>, reason='jump above the second jump threshold 5', value=15.0, limit=102.5)
        >>> rule.state()
        {'pre': 2.5, 'min': 1.0, 'max': 3.0, 'count': 4}

    References:
        MindSpore, "Feature value detection": NPU_ASD_UPPER_THRESH and NPU_ASD_SIGMA_THRESH. The formula of the jump
        follows the operator SilentCheckV2, whose log lines print `pre_val`, `min_val`, `max_val` and `step`.
    """

    name = "threshold"
    takes = ("upper", "sigma")
    feature = "l2"

    def __init__(
        self, upper: tuple[float, float] = UPPER, sigma: tuple[float, float] = SIGMA, min_steps: int = 100
    ) -> None:
        self.upper, self.sigma = check_pair("upper", upper), check_pair("sigma", sigma)
        if type(min_steps) is not int or min_steps < 1:
            raise ConfigError("min_steps", min_steps, "an integer of at least 1")
        self.min_steps = min_steps
        self._know(0.0, 0.0, 0.0, 0)

    def update(self, value: float) -> Verdict:
        """Judges the norm of this step."""
        value = float(value)
        limit, second = self._limit, self._second
        if not isfinite(value):
            level, reason = Level.ERROR, "not finite"
        elif value > limit:
            level, reason = Level.ERROR, self._reason("first", 0, value)
        elif value > self.upper[1] or value > second:
            level, reason = Level.WARNING, self._reason("second", 1, value)
            self.broken = self.upper[1] if value > self.upper[1] else second
        else:
            level, reason = Level.NORMAL, ""
        if level is Level.NORMAL:
            low, high = (min(self._min, value), max(self._max, value)) if self._count else (value, value)
            self._know(value, low, high, self._count + 1)
        return Verdict(level, reason, value, limit)

    def limit(self) -> float:
        """Returns the first absolute threshold, or the limit of the first jump threshold if that is lower."""
        return self._limit

    def jump(self, value: float) -> float:
        """Returns the jump to `value` in widths of the range; NaN while no jump is judged."""
        if self._count < self.min_steps:
            return nan
        spread = max(self._max - self._min, self._max * SMALLEST_RANGE)
        return (value - self._pre) / spread if spread > 0.0 else nan

    def state(self) -> dict[str, float]:
        """Returns `pre`, `min` and `max` of the learned values, and their `count`."""
        return {"pre": self._pre, "min": self._min, "max": self._max, "count": self._count}

    def restore(self, state: Mapping[str, float]) -> None:
        """Continues from a saved state."""
        values = check_state(self, state)
        pre, low, high = values["pre"], values["min"], values["max"]
        for key in ("pre", "min", "max"):
            if not isfinite(values[key]):
                raise bad_state(self, key, values[key], "a finite number")
        if low > high:
            raise bad_state(self, "min", low, f"at most max, which is {high!r}")
        if pre < low or pre > high:
            raise bad_state(self, "pre", pre, f"from min, which is {low!r}, to max, which is {high!r}")
        self._know(pre, low, high, int(values["count"]))

    def _know(self, pre: float, low: float, high: float, count: int) -> None:
        """Sets the last, smallest and largest learned value, and computes the next limits."""
        self._pre, self._min, self._max, self._count = pre, low, high, count
        first = self._second = inf
        if count >= self.min_steps and (spread := max(high - low, high * SMALLEST_RANGE)) > 0.0:
            first, self._second = pre + self.sigma[0] * spread, pre + self.sigma[1] * spread
        self._limit = first if first < self.upper[0] else self.upper[0]

    def _reason(self, level: str, index: int, value: float) -> str:
        if value > self.upper[index]:
            return f"value above the {level} absolute threshold {self.upper[index]:.15g}"
        return f"jump above the {level} jump threshold {self.sigma[index]:.15g}"

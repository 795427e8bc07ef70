"""The vendor's third rule: the squared maximum against its mean so far."""

from collections.abc import Mapping
from math import inf, isfinite, isnan

from asd.rules.base import UPPER, Rule, bad_state, check_pair, check_state
from asd.verdict import Level, Verdict

_BETA = 0.99  # share of the mean that is kept each step


class SilentCheckV3(Rule):
    """Rule that flags a squared maximum that is many times its exponential mean.

    The mean starts from zero and is corrected for that start, as Adam does with its moments:

    * base := avg / (1 - beta**count), judged from the second value on;
    * first level: v is not finite, or v > base * upper[0]; second level: v > base * upper[1];
    * then avg := beta * avg + (1 - beta) * v, with beta 0.99.

    The published behaviour is kept, with its weaknesses. The first value is only tested for being finite. Flagged
    values are averaged in and blunt the rule. With `learn_errors` a NaN stays in the mean for ever; then only another
    NaN or infinity is flagged. A site with zeros so far flags its first nonzero value.

    Args:
        upper: First- and second-level threshold, as multiples of the mean. Each at least 3, first > second. They
            multiply a square: 1000000 times max(g*g) is 1000 times max(abs(g)).
        learn_errors: Whether first-level values are averaged in, as in the vendor's mode that only logs. Its modes that
            end the training leave the state unchanged, so that a NaN never enters the mean.

    Examples:
        >>> rule = SilentCheckV3()
        >>> [rule.update(value).level.name for value in (190.0, 185.0, 2e6, 2e11, float("nan"))]
        ['NORMAL', 'NORMAL', 'WARNING', 'WARNING', 'ERROR']

    References:
        Operator SilentCheckV3 (`aclnnSilentCheckV2`). Its documentation prints the correction as
        avg/(1-beta)**step, which would be a million times the mean at the third step; the published log lines fit
        the form used here.
    """

    name = "silent_check_v3"
    takes = ("upper", "learn_errors")
    feature = "max_square"

    def __init__(self, upper: tuple[float, float] = UPPER, *, learn_errors: bool = True) -> None:
        self.upper = check_pair("upper", upper)
        self.learn_errors = learn_errors
        self._avg, self._count = 0.0, 0

    def update(self, value: float) -> Verdict:
        """Judges the squared maximum of this step."""
        value = float(value)
        base = self._base()
        limit = base * self.upper[0]
        if not isfinite(value):
            level, reason = Level.ERROR, "not finite"
        elif value > limit:
            level, reason = Level.ERROR, f"value above {self.upper[0]:.15g} times its mean"
        elif value > base * self.upper[1]:
            level, reason = Level.WARNING, f"value above {self.upper[1]:.15g} times its mean"
            self.broken = base * self.upper[1]
        else:
            level, reason = Level.NORMAL, ""
        if self.learn_errors or level is not Level.ERROR:
            self._avg = _BETA * self._avg + (1 - _BETA) * value
            self._count += 1
        return Verdict(level, reason, value, limit)

    def limit(self) -> float:
        """Returns the first threshold times the mean; `inf` before the first value."""
        return self._base() * self.upper[0]

    def ratio(self, value: float) -> float:
        """Returns `value` as a multiple of the mean; 0 without a mean, infinite for anything above a mean of 0."""
        base = self._base()
        return value / base if base > 0.0 else inf if value > 0.0 else 0.0

    def state(self) -> dict[str, float]:
        """Returns the mean `avg`, not corrected for its start from zero, and the `count` of values in it."""
        return {"avg": self._avg, "count": self._count}

    def restore(self, state: Mapping[str, float]) -> None:
        """Continues from a saved state."""
        values = check_state(self, state)
        avg = values["avg"]
        if not (self.learn_errors or isfinite(avg)):
            raise bad_state(self, "avg", avg, "a finite number")
        self._avg, self._count = avg, int(values["count"])

    def _base(self) -> float:
        """Returns the corrected mean; `inf`, which no value exceeds, without a mean."""
        return inf if self._count == 0 or isnan(self._avg) else self._avg / (1 - _BETA**self._count)

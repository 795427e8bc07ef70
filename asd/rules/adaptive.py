"""The rule that learns each site's own level: a value against what the site has shown so far."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite, log2, nan
from typing import Any, NamedTuple

from asd.errors import StateError
from asd.rules.base import SIGMA, UPPER, Rule, saved_count, saved_keys, saved_number
from asd.rules.kinds import kind_of
from asd.rules.margins import Margin
from asd.rules.reading import GRADIENT
from asd.rules.threshold import Threshold
from asd.rules.trace import WARM, Trace
from asd.verdict import Level, Verdict

FIRST = 3  # values to learn before the next is judged by them
PATIENCE = 3
"""Steps in a row that a gradient has to be above its margin to be an error: an unusual batch is over in one."""
WIDE = 14.0
"""Bits above what growth explains that make a gradient an error at once. An unusual batch came to 10."""
FREEZE = 20  # alarms in a row after which the level is relearned
NOISE = 10.0  # bits below the gradient of its weight at which that of a bias is rounding: half precision keeps 11
NEVER_ZERO = 8  # values to learn before a first tensor that is all zero is a sign: that takes no statistics
LARGEST_EXPONENT = 1023.0
LARGEST_POWER = 2.0**1023  # 2.0 ** 1024 is no float
SMALLEST = 2.0**-126  # smallest normal float32 number: some threads of MindSpore take smaller ones for 0


class _Finding(NamedTuple):
    """Finding about a value; its limit is `inf` where no single limit was broken."""

    level: Level
    reason: str
    limit: float
    high: bool = False


class Adaptive(Rule):
    """Rule that flags a value far from the earlier values of its site, at any magnitude.

    It works on logarithms, because tensors vary by factors, and keeps a `Trace`, which tells how far growth takes the
    next value. The margin above that is the run's own: it is fitted to the largest healthy distances of all sites of
    the kind. A tensor is

    * an error if its value is not finite; if it is above the margin for the third step in a row, or at once by 14 bits;
      or if at gradients of activations `Threshold`, the document's rule, says so. An unusual batch can send
      gradients up a thousandfold, but not for long;
    * a warning if it is above the margin for the first or second time; if it is far below the recent smallest; if it is
      all zero for the first time; or if `Threshold` warns.

    The first 3 values are learned only. It judges before it learns, and learns from no value that is an error or above
    the margin. After 20 errors in a row it starts anew: a lasting change of level is no fault of one step.

    Args:
        upper: Absolute thresholds of the `Threshold` on gradients of activations.
        sigma: Jump thresholds of that `Threshold`.
        min_steps: Values that it learns before jumps are judged.
        kind: `B` gradients of activations, `W` gradients of parameters, `A` their sums over ranks.
        margin: A margin that several sites share, who then calls `margin.refit()` once a step; without it the site
            fits its own.

    Raises:
        ConfigError: An argument is not valid.

    Examples:
        >>> rule = Adaptive()
        >>> for step in range(40):
        ...     verdict = rule.update(24e-4 if step % 2 else 20e-4)
        >>> [rule.update(0.2).level.name for step in range(3)]
        ['WARNING', 'WARNING', 'ERROR']
        >>> rule.update(1e-4).reason
        'gradient: 1/20.1 of the recent smallest, and 1/2.39 is healthy'
    """

    name = "adaptive"
    takes = ("upper", "sigma")
    feature = "l2"

    def __init__(
        self,
        upper: tuple[float, float] = UPPER,
        sigma: tuple[float, float] = SIGMA,
        min_steps: int = 100,
        *,
        kind: str = GRADIENT,
        margin: Margin | None = None,
    ) -> None:
        self.kind = kind_of(kind)
        self._norm = Threshold(upper, sigma, min_steps) if self.kind.absolute else None
        self._margin = margin if margin is not None else Margin(self.kind)
        self._shared = margin is not None
        self._trace = Trace()
        self._zeros = 0  # all-zero tensors seen
        self._errors = 0  # in a row
        self._high = 0  # values above the margin in a row
        self._held = -inf  # their largest distance, which counts as healthy as soon as it is over
        self._noise = -inf  # the logarithm of a value below which all is rounding
        self._is_noise = False  # whether nothing else was seen
        self._at_once = False  # whether the last value was too large for a single step

    def update(self, value: float) -> Verdict:
        """Judges the value of this step, then learns from it."""
        value, limit = float(value), self.limit()
        if not isfinite(value):
            return Verdict(Level.ERROR, f"{self.kind.name}: not finite", value, limit)
        if value == 0.0:
            finding = self._judge_low(value)
            self._zeros += 1
            if finding is None and self._high and not self._errors:
                self._high = 0
                self._margin.add(self._held)
                self._held = -inf
        else:
            finding = self._judge(value, limit)
            self._learn(log2(value), finding)
        if finding is None:
            return Verdict(Level.NORMAL, "", value, limit)
        self.broken = finding.limit
        return Verdict(finding.level, f"{self.kind.name}: {finding.reason}", value, limit)

    def limit(self) -> float:
        """Returns the lowest limit of the rules that judge already."""
        own = _power(self._strict_bits())
        return own if self._norm is None else min(own, self._norm.limit())

    def second_limit(self) -> float:
        """Returns the largest value that is not suspicious next: above it a gradient gets a second look."""
        within = self._within()
        looks = inf if self._is_noise or within == inf else self._trace.ceiling + self._margin.look
        return min(self.limit(), _power(min(within, looks)))

    def least(self) -> float:
        """Returns the smallest value that is not suspicious next: far below the recent smallest, or the first zero.

        Gradients of a training that learns fast fall to a third in its first steps, so a site must be known well, but
        for the first zero. Where zeros are healthy, as at an expert that gets no tokens, everything is.
        """
        trace = self._trace
        if self._zeros or trace.n < NEVER_ZERO:
            return 0.0
        return max(SMALLEST, 2.0 ** (trace.low - self.kind.drop)) if trace.n >= WARM else SMALLEST

    @property
    def lasts(self) -> bool:
        """True if the last value was an error only because it is above the margin for the third step in a row."""
        return self._high >= PATIENCE and not self._at_once

    @property
    def known(self) -> tuple[float, float]:
        """The recent smallest and largest value, as logarithms; NaN while too few are known."""
        return (self._trace.low, self._trace.env) if self._trace.n >= FIRST else (nan, nan)

    def follow(self, weight: Adaptive) -> None:
        """Takes this for the bias of `weight`: what is far smaller than that one's gradient is rounding."""
        self._noise = weight._trace.env - NOISE if weight._trace.n >= FIRST else -inf
        self._is_noise = self._trace.env < self._noise

    def state(self) -> dict[str, Any]:
        """Returns everything it remembers, ready for JSON; a shared margin is left to who shares it."""
        return {
            "trace": self._trace.state(),
            **{"zeros": self._zeros, "errors": self._errors, "high": self._high},
            "held": None if self._held == -inf else self._held,
            **({"norm": self._norm.state()} if self._norm is not None else {}),
            **({} if self._shared else {"margin": self._margin.state()}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state, exactly as if it had never stopped.

        Raises:
            StateError: It was not saved by a rule for this kind. This one is then as it was.
        """
        what = f"rule adaptive ({self.kind.name})"
        values = saved_keys(what, state, self.state())
        trace = Trace.of(what, values["trace"])
        zeros, errors, high = (saved_count(what, key, values[key]) for key in ("zeros", "errors", "high"))
        held = -inf if values["held"] is None else saved_number(what, "held", values["held"])
        before = self._norm.state() if self._norm is not None else None
        try:
            if self._norm is not None:
                self._norm.restore(values["norm"])
            if not self._shared:
                self._margin.restore(values["margin"])
        except StateError:
            if self._norm is not None and before is not None:
                self._norm.restore(before)
            raise
        self._trace, self._zeros, self._errors, self._high, self._held = trace, zeros, errors, high, held

    def _within(self) -> float:
        """Returns the logarithm of the largest value within the margin."""
        if self._is_noise:
            return self._strict_bits()
        return inf if self._trace.n < FIRST else self._trace.ceiling + self._margin.bits

    def _strict_bits(self) -> float:
        """Returns the logarithm of the largest value that is not first level by the site's own past."""
        if self._trace.n < FIRST:
            return inf
        if self._is_noise:
            return self._noise + WIDE
        # One value above the margin is an error at once when others were so just before.
        return self._within() if self._high >= PATIENCE - 1 else self._trace.ceiling + WIDE

    def _judge(self, value: float, limit: float) -> _Finding | None:
        """Returns the finding about a value above 0, if any; the published rule learns from the value."""
        own, within = self._strict_bits(), self._within()
        jump = self._norm.limit() if self._norm is not None else inf
        self._at_once = value > min(_power(self._trace.ceiling + WIDE), jump) or self._is_noise
        norm = self._norm.update(value) if self._norm is not None else None
        if value > limit:
            by_rule = norm is not None and norm.level is Level.ERROR and not value > _power(own)
            words = norm.reason if norm is not None and by_rule else self._how_far(value, own)
            return _Finding(Level.ERROR, words, limit)
        if value > _power(within):
            return _Finding(Level.WARNING, self._how_far(value, within), _power(within), high=True)
        if norm is not None and norm.level is not Level.NORMAL and self._norm is not None:
            return _Finding(Level.WARNING, norm.reason, self._norm.broken)
        return self._judge_low(value)

    def _how_far(self, value: float, bits: float) -> str:
        lasting = f" for {PATIENCE} steps" if self._high >= PATIENCE - 1 else ""
        far, healthy = (_power(x - self._trace.env) for x in (log2(value), bits))
        return f"{far:.3g} times the recent largest{lasting}, and {healthy:.3g} is healthy"

    def _judge_low(self, value: float) -> _Finding | None:
        least = self.least()
        if not value < least:
            return None
        if value == 0.0:
            return _Finding(Level.WARNING, "all zero, which it never was before", inf)
        far = f"1/{_power(self._trace.low - log2(value)):.3g} of the recent smallest"
        return _Finding(Level.WARNING, f"{far}, and 1/{2**self.kind.drop:.3g} is healthy", least)

    def _learn(self, x: float, finding: _Finding | None) -> None:
        if finding is not None and finding.level is Level.ERROR:
            self._errors += 1
            self._high += 1
            self._held = -inf
            if self._errors <= FREEZE:
                return
            if self._errors == FREEZE + 1:
                self._trace = Trace()
        elif finding is not None and finding.high:
            self._errors = 0
            self._high += 1
            self._held = max(self._held, x - self._trace.ceiling)
            return
        else:
            self._errors = self._high = 0
            self._margin.add(self._held)
            self._held = -inf
            if self._is_noise and x >= self._noise:
                self._trace = Trace()  # a gradient at last
            elif self._trace.n >= FIRST:
                self._margin.add(x - self._trace.ceiling)
        self._trace.learn(x)
        if not self._shared:
            self._margin.refit()


def _power(bits: float) -> float:
    """Returns 2 to the power of bits."""
    return 2.0**bits if bits < LARGEST_EXPONENT else inf if bits == inf else LARGEST_POWER

"""The rule that learns each site's own level: a robust deviation and an envelope of log2(max|g|)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, log2

from asd.rules.base import SIGMA, UPPER, Rule, bad_state, check_count, check_number, check_state
from asd.rules.threshold import Threshold
from asd.rules.trace import DEVIATION_FLOOR, Trace
from asd.verdict import Level, Verdict

__all__ = ["Adaptive"]

WARM_UP_FACTOR = 1.5
"""How much wider the envelope is during the warm-up, when gradients still change their level quickly."""
LARGEST_EXPONENT = 1023.0
"""2.0 ** 1024 is no float."""


class Adaptive(Rule):
    """Flags a maximum that is far above what this site has shown so far, however small the site's level is.

    It works on x = log2(value), because gradients vary by factors, and keeps four numbers about it: the mean mu, the
    mean absolute deviation dev, the envelope env (recent largest) and the floor low (recent smallest). A value is

    * an error if x - env > envelope, or x - mu > deviations * max(dev, 0.05);
    * a warning if low - x > drop: a stuck or lost gradient;
    * at least what a `Threshold` on the same values says, which is the only judge of the first values.

    It judges before it learns, and learns from no value that anything flagged, so a fault can't become normal. The
    other side of this: after a lasting change of level by more than the limits, all further values are flagged until
    the state is started anew (`restore(Adaptive().state())`).

    Args:
        upper: Absolute thresholds of the `Threshold` that judges as well, in units of max(abs(g)).
        sigma: Jump thresholds of that `Threshold`.
        min_steps: Values that it learns before jumps are judged.
        envelope: Largest healthy distance above the envelope, in bits (2.5 is a factor of 5.7). Half as much again
            during the warm-up. Clean runs reached 2.1, and 2.7 in the warm-up.
        deviations: Largest healthy distance above the mean, in deviations. Clean runs reached 11.2.
        drop: Largest healthy distance below the floor, in bits. Clean runs reached 0.82.
        first_steps: Values to learn before this rule judges at all.
        warm_up: Values to learn before the envelope has its final width.

    Examples:
        >>> rule = Adaptive()
        >>> for step in range(40):
        ...     verdict = rule.update(1e-4 if step % 2 else 1.2e-4)
        >>> rule.update(1e-2).reason
        'value more than 12.2 deviations above the mean'
        >>> rule.update(1e-5).level.name
        'WARNING'
        >>> Threshold().update(1e-2).level.name
        'NORMAL'

    References:
        The margins are those that raised no alarm in 1.03 million checks of gradients of activations, in clean
        training runs of small transformers from step 20 on.
    """

    name = "adaptive"
    takes = ("upper", "sigma")
    feature = "max"

    def __init__(
        self,
        upper: tuple[float, float] = UPPER,
        sigma: tuple[float, float] = SIGMA,
        min_steps: int = 100,
        *,
        envelope: float = 2.5,
        deviations: float = 12.2,
        drop: float = 1.26,
        first_steps: int = 5,
        warm_up: int = 20,
    ) -> None:
        self._threshold = Threshold(upper, sigma, min_steps)
        self.envelope = check_number("envelope", envelope, 0, "a number of bits of at least 0")
        self.deviations = check_number("deviations", deviations, 0, "a number of at least 0")
        self.drop = check_number("drop", drop, 0, "a number of bits of at least 0")
        self.first_steps = check_count("first_steps", first_steps, 1)
        self.warm_up = check_count("warm_up", warm_up, 1)
        self._trace = Trace()

    def update(self, value: float) -> Verdict:
        """Judges the maximum of this step."""
        value = float(value)
        limit = self.limit()
        level, reason, _, _ = self._threshold.update(value)
        if level is Level.WARNING:
            self.broken = self._threshold.broken
        # Zero has no logarithm, and says nothing about the level of the other values.
        if value > 0.0 and isfinite(value):
            x = log2(value)
            if level is not Level.ERROR and value > limit:
                level, reason = Level.ERROR, self._reason()
            elif level is Level.NORMAL and self._trace.n >= self.first_steps and self._trace.low - x > self.drop:
                level, reason = Level.WARNING, f"value less than 1/{2**self.drop:.3g} of the recent smallest"
                self.broken = 2.0 ** (self._trace.low - self.drop)
            if level is Level.NORMAL:
                self._trace.learn(x)
        return Verdict(level, reason, value, limit)

    def limit(self) -> float:
        """The lowest limit of the tests that judge already."""
        published = self._threshold.limit()
        if self._trace.n < self.first_steps:
            return published
        above_envelope, above_mean = self._own_limits()
        own: float = 2.0 ** min(above_envelope, above_mean, LARGEST_EXPONENT)
        return own if own < published else published

    def state(self) -> dict[str, float]:
        """`mu`, `dev`, `env` and `low` in bits, the count `learned` of values in them, and `Threshold.state()`."""
        trace = self._trace
        own = {"mu": trace.mu, "dev": trace.dev, "env": trace.env, "low": trace.low, "learned": trace.n}
        return {**own, **self._threshold.state()}

    def restore(self, state: Mapping[str, float]) -> None:
        """Continues from a saved state."""
        values = check_state(self, state)
        for key in ("mu", "dev", "env", "low"):
            if not isfinite(values[key]):
                raise bad_state(self, key, values[key], "a finite number")
        dev, env, low = values["dev"], values["env"], values["low"]
        if dev < 0:
            raise bad_state(self, "dev", dev, "a number of at least 0")
        if low > env:
            raise bad_state(self, "low", low, f"at most env, which is {env!r}")
        learned, count = int(values["learned"]), int(values["count"])
        if learned > count:
            raise bad_state(self, "learned", learned, f"at most count, which is {count}")
        self._threshold.restore({key: values[key] for key in self._threshold.state()})
        trace = self._trace = Trace()
        trace.mu, trace.dev, trace.env, trace.low, trace.n = values["mu"], dev, env, low, learned

    def _own_limits(self) -> tuple[float, float]:
        """What x may reach by the envelope and by the mean, in bits."""
        trace = self._trace
        margin = self.envelope if trace.n >= self.warm_up else self.envelope * WARM_UP_FACTOR
        return trace.env + margin, trace.mu + self.deviations * max(trace.dev, DEVIATION_FLOOR)

    def _reason(self) -> str:
        above_envelope, above_mean = self._own_limits()
        if above_mean < above_envelope:
            return f"value more than {self.deviations:.15g} deviations above the mean"
        return f"value more than {2 ** (above_envelope - self._trace.env):.3g} times the recent largest"

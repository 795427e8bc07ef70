"""The second tier: each checkpoint against its own past."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log2, nextafter, sqrt
from typing import Any, NamedTuple

from asd.errors import StateError
from asd.rules import SilentCheckV3, Threshold
from asd.tiers.features import FEATURES, Features
from asd.tiers.finite import not_finite
from asd.tiers.kinds import kind_of
from asd.tiers.saved import check_count, check_keys, check_number
from asd.tiers.tail import Tails
from asd.tiers.trace import DEVIATION_FLOOR, FIRST, WARM, Trace
from asd.verdict import Level, Verdict

__all__ = ["History"]

WARM_UP_FACTOR = 1.5
"""How much wider the envelope is during the warm-up."""
FREEZE = 20
"""Alarms in a row after which a new level is learned, bit by bit."""
CUSUM_SLACK = 3.0
LARGEST_EXPONENT = 1023.0
"""2.0 ** 1024 is no float."""
LARGEST = 1.7976931348623157e308
SMALLEST_SQUARE = 1e-290
"""Below it squares lose their digits; no float32 has such a square."""
_WORDS = {"max_abs": "maximum", "l2": "L2 norm", "mean_abs": "mean magnitude"}


class _Finding(NamedTuple):
    level: Level
    reason: str
    feature: str


class History:
    """Flags a tensor whose size is far from what its checkpoint has shown so far, however small that is.

    It works on the logarithms of three features, because tensors vary by factors, and keeps a `Trace` of each. A tensor
    is

    * an error if an element is not finite; if a feature is above its envelope by more than the margin of its kind;
      if the maximum of a gradient is too many deviations above its mean; or if a published rule says so:
      `SilentCheckV3` on max², and at gradients of activations `Threshold` on the L2 norm. So it is never looser;
    * a warning if its L2 norm or mean magnitude is far below the recent smallest; if it is all zero where it never was;
      if the maximum stays high for many steps (a CUSUM of the deviations); or if a published rule warns.

    The first 5 values are judged by the published rules alone, and the envelope is half as wide again for the first 20.
    After that the margins are fitted to the largest healthy distances, see `Tail`, and never fall below the measured
    ones. It judges before it learns and learns from no value that is an error; after 20 errors in a row it learns its
    own limit in the place of the value, so that a lasting change of level ends the alarms some steps later.

    Args:
        kind: `Y` outputs of the forward pass, `B` gradients of activations, `W` gradients of parameters.
        upper: Thresholds of the published rules, see `Threshold` and `SilentCheckV3`.
        sigma: See `Threshold`.
        min_steps: See `Threshold`.
        tails: Margins that several checkpoints share, who then calls `tails.refit()` once a step; without it the
            checkpoint fits its own.

    Attributes:
        feature: The feature that the last verdict is about, one of `FEATURES`.

    Raises:
        ConfigError: An argument is not valid.

    Examples:
        >>> history = History("B")
        >>> for step in range(40):
        ...     size = 1e-4 if step % 2 else 1.2e-4
        ...     verdict = history.update(Features(size, 20 * size, size / 4))
        >>> history.update(Features(1e-2, 24e-4, 3e-5)).reason
        'gradient: maximum more than 12.2 deviations above its mean'
        >>> history.update(Features(1e-4, 1e-4, 1e-6)).reason
        'gradient: L2 norm less than 1/2.39 of the recent smallest'
    """

    def __init__(
        self,
        kind: str,
        *,
        upper: tuple[float, float] = (1000000, 10000),
        sigma: tuple[float, float] = (100000, 5000),
        min_steps: int = 100,
        tails: Tails | None = None,
    ) -> None:
        self.kind = kind_of(kind)
        self.feature = "max_abs"
        self._square = SilentCheckV3(upper, learn_errors=False)
        self._norm = Threshold(upper, sigma, min_steps) if self.kind.absolute else None
        self._tails = tails if tails is not None else Tails(self.kind, upper[0])
        self._shared = tails is not None
        self._traces = [Trace() for _ in FEATURES]
        self._cusum = 0.0
        self._errors = 0  # in a row
        self._zeros = 0  # in the warm-up

    def update(self, features: Features) -> Verdict:
        """Judges the tensor of this step, then learns from it.

        Args:
            features: Of this step, without loss scale; from 0 or the smallest denormal to infinity, or NaN.

        Returns:
            The verdict, about the feature that `self.feature` names from now on. Its limit is what `limit()` had for
            that feature before this call.
        """
        limits = self.limit()
        if not features.finite:
            self.feature = "max_abs"
            reason = f"{self.kind.name}: {not_finite(features)}"
            return Verdict(Level.ERROR, reason, features.not_a_number(), limits["max_abs"])
        if features.max_abs == 0.0:
            finding = self._judge_zero()
        else:
            finding = self._judge(features, limits)
            self._learn(features, limits, is_error=finding.level is Level.ERROR)
        self.feature = finding.feature
        reason = f"{self.kind.name}: {finding.reason}" if finding.reason else ""
        return Verdict(finding.level, reason, getattr(features, finding.feature), limits[finding.feature])

    def limit(self) -> dict[str, float]:
        """Per feature the largest value that is not an error next; `inf` where there is none.

        `update` answers `Level.ERROR` exactly when a tensor is not finite or a feature is above its limit.
        """
        own = [self._own_limit(i) for i in range(len(FEATURES))]
        own[0] = min(own[0], _root(self._square.limit()))
        if self._norm is not None:
            own[1] = min(own[1], self._norm.limit())
        return dict(zip(FEATURES, own, strict=True))

    def state(self) -> dict[str, Any]:
        """Everything it remembers, ready for JSON; shared tails are left to who shares them."""
        return {
            **{feature: trace.state() for feature, trace in zip(FEATURES, self._traces, strict=True)},
            "cusum": self._cusum,
            "errors": self._errors,
            "zeros": self._zeros,
            "square": self._square.state(),
            **({"norm": self._norm.state()} if self._norm is not None else {}),
            **({} if self._shared else {"tails": self._tails.state()}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state, exactly as if it had never stopped.

        Raises:
            StateError: It was not saved by a history of this kind. This one is then as it was.
        """
        what = f"tier adaptive ({self.kind.name})"
        values = check_keys(what, state, self.state())
        traces = [Trace.of(f"{what}, {feature}", values[feature]) for feature in FEATURES]
        cusum = check_number(what, "cusum", values["cusum"], 0)
        errors, zeros = (check_count(what, key, values[key]) for key in ("errors", "zeros"))
        before = self._square.state(), self._norm.state() if self._norm is not None else None
        try:
            self._square.restore(values["square"])
            if self._norm is not None:
                self._norm.restore(values["norm"])
            if not self._shared:
                self._tails.restore(values["tails"])
        except StateError:
            self._square.restore(before[0])
            if self._norm is not None and before[1] is not None:
                self._norm.restore(before[1])
            raise
        self._traces, self._cusum, self._errors, self._zeros = traces, cusum, errors, zeros

    def _margin(self, i: int) -> float:
        margin = self._tails.envelope[i].margin
        return margin if self._traces[i].n >= WARM else max(margin, WARM_UP_FACTOR * self.kind.envelope[i])

    def _own_limit(self, i: int) -> float:
        trace = self._traces[i]
        if trace.n < FIRST:
            return inf
        bits = trace.env + self._margin(i)
        if i == 0 and self._tails.deviations is not None:
            bits = min(bits, trace.mu + self._tails.deviations.margin * max(trace.dev, DEVIATION_FLOOR))
        limit: float = 2.0 ** min(bits, LARGEST_EXPONENT)
        return limit

    def _judge(self, features: Features, limits: Mapping[str, float]) -> _Finding:
        published = [(self._square.update(min(features.max_abs * features.max_abs, LARGEST)), "max_abs")]
        if self._norm is not None:
            published.append((self._norm.update(features.l2), "l2"))
        cusum = self._sum_deviations(features.max_abs)
        for i, (feature, value) in enumerate(zip(FEATURES, features, strict=False)):
            if value > limits[feature]:
                return _Finding(Level.ERROR, self._reason(i, value, published), feature)
        warning = next((found for found in published if found[0].level is not Level.NORMAL), None)
        if warning is not None:
            return _Finding(Level.WARNING, f"{_WORDS[warning[1]]}: {warning[0].reason}", warning[1])
        return self._judge_low(features) or cusum or _Finding(Level.NORMAL, "", "max_abs")

    def _reason(self, i: int, value: float, published: list[tuple[Verdict, str]]) -> str:
        feature, trace = FEATURES[i], self._traces[i]
        if value <= self._own_limit(i):
            return next(f"{_WORDS[feature]}: {verdict.reason}" for verdict, about in published if about == feature)
        margin, deviations = self._margin(i), self._tails.deviations
        if i == 0 and deviations is not None:
            above_mean = trace.mu + deviations.margin * max(trace.dev, DEVIATION_FLOOR)
            if above_mean < trace.env + margin:
                return f"{_WORDS[feature]} more than {deviations.margin:.3g} deviations above its mean"
        return f"{_WORDS[feature]} more than {2**margin:.3g} times the recent largest"

    def _judge_low(self, features: Features) -> _Finding | None:
        for i, drop in zip((1, 2), self.kind.drop, strict=True):
            trace, value = self._traces[i], features[i]
            if value > 0.0 and trace.n >= FIRST and trace.low - log2(value) > drop:
                reason = f"{_WORDS[FEATURES[i]]} less than 1/{2**drop:.3g} of the recent smallest"
                return _Finding(Level.WARNING, reason, FEATURES[i])
        return None

    def _judge_zero(self) -> _Finding:
        if self._traces[0].n < WARM:
            self._zeros += 1
        elif not self._zeros:
            return _Finding(Level.WARNING, "all zero, which it never was before", "max_abs")
        return _Finding(Level.NORMAL, "", "max_abs")

    def _sum_deviations(self, value: float) -> _Finding | None:
        deviations, trace = self.kind.deviations, self._traces[0]
        if deviations is None or self.kind.cusum is None or trace.n < WARM:
            return None
        self._cusum = max(0.0, self._cusum + min(trace.deviations(log2(value)), deviations) - CUSUM_SLACK)
        if self._cusum <= self.kind.cusum:
            return None
        return _Finding(Level.WARNING, "maximum above its mean for many steps", "max_abs")

    def _learn(self, features: Features, limits: Mapping[str, float], *, is_error: bool) -> None:
        self._errors = self._errors + 1 if is_error else 0
        if is_error and self._errors <= FREEZE:
            return
        for i, (trace, feature) in enumerate(zip(self._traces, FEATURES, strict=True)):
            value = min(features[i], limits[feature])
            if value > 0.0:
                x = log2(value)
                if trace.n >= WARM and not is_error:
                    self._tails.envelope[i].add(x - trace.env)
                    if i == 0 and self._tails.deviations is not None:
                        self._tails.deviations.add(trace.deviations(x))
                trace.learn(x)
        if not self._shared:
            self._tails.refit()


def _root(limit: float) -> float:
    """The largest value whose square is not above `limit`; `inf` where squares say nothing."""
    if not SMALLEST_SQUARE < limit < inf:
        return inf
    root = sqrt(limit)
    while root * root > limit:
        root = nextafter(root, 0.0)
    while (above := nextafter(root, inf)) * above <= limit:
        root = above
    return root

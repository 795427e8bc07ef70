"""The second tier: each checkpoint against its own past."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log2
from typing import Any

from asd.errors import StateError
from asd.rules import Threshold
from asd.rules.base import SIGMA, UPPER
from asd.rules.history.early_signs import EarlySign, EarlySigns
from asd.rules.history.margins import Margins
from asd.rules.history.unchanged_output import UnchangedOutput
from asd.rules.readings.features import FEATURES, WORDS, Features
from asd.rules.readings.kinds import kind_of
from asd.rules.saved import saved_count, saved_keys, saved_number, wrong_state
from asd.rules.trace import DEVIATION_FLOOR, WARM, Trace
from asd.verdict import Level, Verdict

__all__ = ["History"]

FIRST = 3
"""Values to learn before the next is judged by them."""
PATIENCE = 3
"""Steps in a row that a gradient has to be above its margins to be an error: an unusual batch is over in one."""
WIDE = 14.0
"""Bits above what growth explains that make a gradient an error at once. An unusual batch came to 10."""
FREEZE = 20
"""Alarms in a row after which the level is learned anew."""
USUAL_DEVIATION = 0.1
"""Bits by which outputs vary; what is above that comes twice on top of the margin."""
SUSPICIOUS = 0.5
"""Bits above what growth explains that make an output suspicious: worth a second look, and no anomaly by itself."""
LARGEST_EXPONENT = 1023.0
LARGEST_POWER = 2.0**1023
"""2.0 ** 1024 is no float."""
_Logarithms = tuple[float, float | None, float | None]
"""Of the three features; None of one that is 0."""


_NOTHING = [-inf] * 4
_UNLIMITED = (inf, inf, inf)


class History:
    """Flags a tensor whose size is far from what its checkpoint has shown so far, however small that is.

    It works on the logarithms of three features, because tensors vary by factors, and keeps a `Trace` of each, which
    tells how far growth takes the next value. The margins above that are the run's own: they are fitted to
    the largest healthy distances of all checkpoints of the kind. A tensor is

    * an error if an element is not finite; if a feature of an output is above the margins; if one of a gradient is for
      the third step in a row, or at once by 14 bits; or if at gradients of activations `Threshold`, the package's
      default rule, says so of the L2 norm. An unusual batch can send gradients up a thousandfold, but not for long;
    * a warning if a gradient is above the margins for the first or second time; if the L2 norm or mean magnitude is far
      below the recent smallest; if it is all zero for the first time; if the maximum stays high for many steps (a CUSUM
      of the deviations); or if `Threshold` warns.

    Outputs that vary much have wider margins: twice what their mean deviation is above 0.1 bits. One that no data
    reached in the step before may rise by 14 bits, and is not learned from as long as none do.

    The first 3 values are learned only. It judges before it learns, and learns from no value that is an error or a
    gradient above the margins. After 20 errors in a row it starts anew: a lasting change of level is no fault of one
    step.

    Args:
        kind: `Y` outputs of the forward pass, `B` gradients of activations, `W` gradients of parameters, `A` their
            means over ranks.
        upper: Absolute thresholds of the `Threshold` on gradients of activations.
        sigma: Jump thresholds of that `Threshold`.
        min_steps: Values that it learns before jumps are judged.
        tails: Margins that several checkpoints share, who then calls `tails.refit()` once a step; without it the
            checkpoint fits its own.

    Attributes:
        feature: The feature that the last verdict is about, one of `FEATURES`.
        broken: The limit that the last second-level anomaly broke; `inf` where no single value says it.

    Raises:
        ConfigError: An argument is not valid.

    Examples:
        >>> history = History("B")
        >>> for step in range(40):
        ...     size = 1e-4 if step % 2 else 1.2e-4
        ...     verdict = history.update(Features(size, 20 * size, size / 4))
        >>> [history.update(Features(1e-2, 24e-4, 3e-5)).level.name for step in range(3)]
        ['WARNING', 'WARNING', 'ERROR']
        >>> history.update(Features(1e-4, 1e-4, 1e-6)).reason
        'gradient: L2 norm less than 1/2.39 of the recent smallest'
    """

    def __init__(
        self,
        kind: str,
        *,
        upper: tuple[float, float] = UPPER,
        sigma: tuple[float, float] = SIGMA,
        min_steps: int = 100,
        tails: Margins | None = None,
    ) -> None:
        self.kind = kind_of(kind)
        self.feature = "max_abs"
        self.broken = inf
        self._norm = Threshold(upper, sigma, min_steps) if self.kind.absolute else None
        self._tails = tails if tails is not None else Margins(self.kind)
        self._shared = tails is not None
        self._traces = [Trace() for _ in FEATURES]
        self._quiet = EarlySigns(self.kind)
        self._errors = 0  # in a row
        self._high = 0  # values above the margins in a row
        self._held: list[float] = []  # their distances, which count as healthy as soon as it is over
        self._idle = UnchangedOutput()  # of an output only
        self._limits: tuple[float, float, float] | None = None  # as long as nothing is learned and no margin changes
        self._version = -1
        self._within = _UNLIMITED  # the margins, as logarithms

    def update(self, features: Features) -> Verdict:
        """Judges the tensor of this step, then learns from it.

        Args:
            features: Of this step, without loss scale; from 0 or the smallest denormal to infinity, or NaN.

        Returns:
            The verdict, about the feature that `self.feature` names from now on. Its limit is what `limit()` had for
            that feature before this call.
        """
        limits = self._current()
        largest, l2, mean, bad = features[:4]
        self.feature = "max_abs"
        if bad or not (largest < inf and l2 < inf and mean < inf):
            reason = f"{self.kind.name}: not finite"
            return Verdict(Level.ERROR, reason, features.not_a_number(), limits[0])
        if largest == 0.0:
            finding = self._quiet.judge_zero(self._traces, features)
        else:
            x = (log2(largest), log2(l2) if l2 > 0.0 else None, log2(mean) if mean > 0.0 else None)
            finding = self._judge(features, x, limits)
            if self._is_idle(x, finding):
                self._errors = 0
            else:
                self._learn(x, finding)
            self._limits = None
        if finding is None:
            return Verdict(Level.NORMAL, "", largest, limits[0])
        self.feature, self.broken = finding.feature, finding.limit
        i = FEATURES.index(finding.feature)
        return Verdict(finding.level, f"{self.kind.name}: {finding.reason}", features[i], limits[i])

    def limit(self) -> dict[str, float]:
        """Per feature the largest value that is not an error next; `inf` where there is none.

        `update` answers `Level.ERROR` exactly when a tensor is not finite or a feature is above its limit.
        """
        largest, l2, mean = self._current()
        return {"max_abs": largest, "l2": l2, "mean_abs": mean}

    def second_limit(self) -> dict[str, float]:
        """Per feature the largest value that is not suspicious next: above it a gradient is a warning at least.

        Outputs vary so little that much less than what makes them an error is worth a second look.
        """
        current = self._current()  # brings `_within` up to date
        bits = self._within if self.kind.gradient or self._idle.now else map(_suspicious_from, self._traces)
        largest, l2, mean = map(min, current, map(_power, bits))
        return {"max_abs": largest, "l2": l2, "mean_abs": mean}

    def least(self) -> dict[str, float]:
        """Per feature the smallest value that is not suspicious next: `update` warns below it."""
        return self._quiet.least(self._traces)

    def state(self) -> dict[str, Any]:
        """Everything it remembers, ready for JSON; shared tails are left to who shares them."""
        return {
            **{feature: trace.state() for feature, trace in zip(FEATURES, self._traces, strict=True)},
            **self._quiet.state(),
            "errors": self._errors,
            "high": self._high,
            "held": [None if each == -inf else each for each in self._held],
            **({} if self.kind.gradient else {"idle": self._idle.state()}),
            **({"norm": self._norm.state()} if self._norm is not None else {}),
            **({} if self._shared else {"tails": self._tails.state()}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state, exactly as if it had never stopped.

        Raises:
            StateError: It was not saved by a history of this kind. This one is then as it was.
        """
        what = f"tier adaptive ({self.kind.name})"
        values = saved_keys(what, state, self.state())
        traces = [Trace.of(f"{what}, {feature}", values[feature]) for feature in FEATURES]
        quiet = EarlySigns.of(what, self.kind, values)
        errors, high = (saved_count(what, key, values[key]) for key in ("errors", "high"))
        held = _check_held(what, values["held"])
        idle = UnchangedOutput()
        if not self.kind.gradient:
            idle.restore(values["idle"])
        before = self._norm.state() if self._norm is not None else None
        try:
            if self._norm is not None:
                self._norm.restore(values["norm"])
            if not self._shared:
                self._tails.restore(values["tails"])
        except StateError:
            if self._norm is not None and before is not None:
                self._norm.restore(before)
            raise
        self._traces, self._quiet, self._errors = traces, quiet, errors
        self._high, self._held, self._idle = high, held, idle
        self._limits = None

    def _current(self) -> tuple[float, float, float]:
        tails = self._tails
        if self._limits is None or self._version != tails.version:
            first, second, third = self._traces
            if first.n < FIRST:
                bits = self._within = _UNLIMITED
            else:
                margins = tails.margins
                bits = (first.ceiling + WIDE, second.ceiling + WIDE, third.ceiling + WIDE)
                if self._idle.now:
                    self._within = bits
                elif self.kind.gradient:
                    self._within = (
                        self._below_deviations(first.ceiling + margins[0]),
                        second.ceiling + margins[1],
                        third.ceiling + margins[2],
                    )
                else:
                    self._within = (
                        first.ceiling + margins[0] + _spread(first),
                        second.ceiling + margins[1] + _spread(second),
                        third.ceiling + margins[2] + _spread(third),
                    )
                if self._strict:
                    bits = self._within
            largest, l2, mean = map(_power, bits)
            if self._norm is not None:
                norm = self._norm.limit()
                if norm < l2:
                    l2 = norm
            self._limits, self._version = (largest, l2, mean), tails.version
        return self._limits

    @property
    def _strict(self) -> bool:
        """Whether one value above the margin is an error at once."""
        return not self.kind.gradient or self._high >= PATIENCE - 1

    def _below_deviations(self, bits: float) -> float:
        """The logarithm of the largest maximum that is within the margins, of which `bits` is one."""
        trace, deviations = self._traces[0], self._tails.deviations
        if deviations is not None and trace.n >= WARM:
            dev = trace.dev if trace.dev > DEVIATION_FLOOR else DEVIATION_FLOOR
            above: float = trace.mu + deviations.margin * dev
            if above < bits:
                return above
        return bits

    def _judge(self, features: Features, x: _Logarithms, limits: tuple[float, float, float]) -> EarlySign | None:
        """What is wrong, if anything; the published rule and the CUSUM learn."""
        norm = self._norm.update(features.l2) if self._norm is not None else None
        cusum = self._quiet.sum_deviations(self._traces[0], x[0])
        if features[0] > limits[0] or features[1] > limits[1] or features[2] > limits[2]:
            i = next(i for i in range(3) if features[i] > limits[i])
            return EarlySign(Level.ERROR, self._reason(i, x[i], norm), FEATURES[i])
        high = self._judge_high(x)
        if high is None and norm is not None and norm.level is not Level.NORMAL:
            broken = self._norm.broken if self._norm is not None else inf
            return EarlySign(Level.WARNING, f"{WORDS['l2']}: {norm.reason}", "l2", limit=broken)
        return high or self._quiet.judge_low(self._traces, features) or cusum

    def _reason(self, i: int, x: float | None, norm: Verdict | None) -> str:
        own = self._traces[i].ceiling + WIDE if self._traces[i].n >= FIRST and not self._strict else self._within[i]
        if norm is not None and norm.level is Level.ERROR and not (x is not None and x > own):
            return f"{WORDS[FEATURES[i]]}: {norm.reason}"
        return f"{WORDS[FEATURES[i]]} {self._how_far(i, own)}"

    def _how_far(self, i: int, bits: float) -> str:
        trace, tails = self._traces[i], self._tails
        lasting = f" for {PATIENCE} steps" if self.kind.gradient and self._strict else ""
        if tails.deviations is not None and bits < trace.ceiling + tails.envelope[i].margin:
            return f"more than {tails.deviations.margin:.3g} deviations above its mean{lasting}"
        return f"more than {2 ** (bits - trace.env):.3g} times the recent largest{lasting}"

    def _judge_high(self, x: _Logarithms) -> EarlySign | None:
        """A gradient that is above the margins once or twice; what is above them more often is an error."""
        first, l2, mean = self._within
        if x[0] > first or (x[1] is not None and x[1] > l2) or (x[2] is not None and x[2] > mean):
            for i, (value, bits) in enumerate(zip(x, self._within, strict=True)):
                if value is not None and value > bits:
                    reason = f"{WORDS[FEATURES[i]]} {self._how_far(i, bits)}"
                    return EarlySign(Level.WARNING, reason, FEATURES[i], high=True, limit=_power(bits))
        return None

    def _is_idle(self, x: _Logarithms, finding: EarlySign | None) -> bool:
        """Whether this is an output that no data reach, of which enough is known."""
        if self.kind.gradient or (finding is not None and finding.level is Level.ERROR):
            return False
        self._idle.update(x)
        return self._idle.now and self._traces[0].n >= FIRST

    def _learn(self, x: _Logarithms, finding: EarlySign | None) -> None:
        if finding is not None and finding.level is Level.ERROR:
            self._errors += 1
            self._high += 1
            self._held = []
            if self._errors <= FREEZE:
                return
            if self._errors == FREEZE + 1:
                self._traces = [Trace() for _ in FEATURES]
                self._quiet.forget()
        elif finding is not None and finding.high:
            self._errors = 0
            self._high += 1
            self._held = [max(pair) for pair in zip(self._distances(x), self._held or _NOTHING, strict=True)]
            return
        else:
            self._learn_margins(x)
        for trace, value in zip(self._traces, x, strict=True):
            if value is not None:
                trace.learn(value)
        if not self._shared:
            self._tails.refit()

    def _learn_margins(self, x: _Logarithms) -> None:
        self._errors = self._high = 0
        if self._idle.ended:
            return  # how far data send what none reached before says nothing about other checkpoints
        if self._held:
            self._tails.add(self._held)
            self._held = []
        if self._traces[0].n >= FIRST:
            self._tails.add(self._distances(x))

    def _distances(self, x: _Logarithms) -> list[float]:
        """How far a value is above what growth explains, per feature, and the maximum above its mean in deviations."""
        first, second, third = self._traces
        largest, l2, mean = x
        return [
            largest - first.ceiling,
            l2 - second.ceiling if l2 is not None else -inf,
            mean - third.ceiling if mean is not None else -inf,
            first.deviations(largest) if self.kind.deviations is not None and first.n >= WARM else -inf,
        ]


def _suspicious_from(trace: Trace) -> float:
    """The logarithm of the largest value of an output that is not suspicious."""
    return trace.ceiling + SUSPICIOUS + _spread(trace) if trace.n >= FIRST else inf


def _spread(trace: Trace) -> float:
    """On top of the margin of an output that varies more than most, as with the share of tokens that an expert gets."""
    return 2.0 * (trace.dev - USUAL_DEVIATION) if trace.dev > USUAL_DEVIATION else 0.0


def _power(bits: float) -> float:
    """2 to the power of bits."""
    return 2.0**bits if bits < LARGEST_EXPONENT else inf if bits == inf else LARGEST_POWER


def _check_held(what: str, values: object) -> list[float]:
    """The held distances that were saved, or StateError."""
    if values == []:
        return []
    if not isinstance(values, list) or len(values) != len(_NOTHING):
        raise wrong_state(what, "held", values, f"none or {len(_NOTHING)} numbers")
    return [-inf if each is None else saved_number(what, "held", each) for each in values]

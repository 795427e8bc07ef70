"""What is no error yet: tensors that became small or zero, and maxima that stay high for long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from asd.rules.readings.features import FEATURES, WORDS, Features, too_small
from asd.rules.readings.kinds import Kind
from asd.rules.saved import saved_count, saved_number
from asd.rules.trace import WARM, Trace
from asd.verdict import Level

__all__ = ["EarlySign", "EarlySigns"]

CUSUM_SLACK = 3.0
_SMALLEST = 2.0**-126
"""Of normal float32 numbers: some threads of MindSpore take smaller ones for 0."""
_ANYTHING = dict.fromkeys(FEATURES, 0.0)
_NEVER_ZERO = 8
"""Values to learn before a first tensor that is all zero is a sign: that takes no statistics."""


class EarlySign(NamedTuple):
    """What a `History` has to say about a value.

    Attributes:
        level: How bad it is.
        reason: Why, in words.
        feature: Of which feature.
        high: Whether it is above the margins, and no error yet.
        limit: What a warning is above or below; `inf` where no single value says it.
    """

    level: Level
    reason: str
    feature: str
    high: bool = False
    limit: float = inf


class EarlySigns:
    """The warnings of one checkpoint that is within its margins.

    Args:
        kind: How far below is too far, and which sum of deviations is too much.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._cusum = 0.0
        self._zeros = 0  # all-zero tensors seen

    def least(self, traces: Sequence[Trace]) -> dict[str, float]:
        """Per feature the smallest value that is no warning: far below the recent smallest, or the first zero.

        Gradients of a training that learns fast fall to a third in its first steps, so a checkpoint must be known well,
        but for the first zero.
        """
        if traces[0].n < _NEVER_ZERO:
            return _ANYTHING
        least = {FEATURES[0]: _SMALLEST if self._zeros == 0 else 0.0}
        for feature, trace, drop in zip(FEATURES[1:], traces[1:], self._kind.drop, strict=True):
            least[feature] = 2.0 ** (trace.low - drop) if trace.n >= WARM else 0.0
        return least

    def judge_low(self, traces: Sequence[Trace], features: Features) -> EarlySign | None:
        """Whether a tensor is below `least` of the three `traces`."""
        least = self.least(traces)
        low = too_small(features, least)
        if low == FEATURES[0]:
            return EarlySign(Level.WARNING, "all zero, which it never was before", low)
        if low:
            drop = self._kind.drop[FEATURES.index(low) - 1]
            reason = f"{WORDS[low]} less than 1/{2**drop:.3g} of the recent smallest"
            return EarlySign(Level.WARNING, reason, low, limit=least[low])
        return None

    def judge_zero(self, traces: Sequence[Trace], features: Features) -> EarlySign | None:
        """Whether a first tensor that is all zero is a warning."""
        finding = self.judge_low(traces, features)
        self._zeros += 1
        return finding

    def sum_deviations(self, trace: Trace, x: float) -> EarlySign | None:
        """Whether the maximum was above its mean for many steps: a CUSUM of the deviations."""
        deviations, most = self._kind.deviations, self._kind.cusum
        if deviations is None or most is None or trace.n < WARM:
            return None
        z = trace.deviations(x)
        self._cusum += (z if z < deviations else deviations) - CUSUM_SLACK
        if self._cusum < 0.0:
            self._cusum = 0.0
        if self._cusum <= most:
            return None
        return EarlySign(Level.WARNING, "maximum above its mean for many steps", "max_abs")

    def forget(self) -> None:
        """Says that the level is learned anew."""
        self._cusum = 0.0

    def state(self) -> dict[str, Any]:
        """What it remembers, ready for JSON."""
        return {"cusum": self._cusum, "zeros": self._zeros}

    @classmethod
    def of(cls, what: str, kind: Kind, state: Mapping[str, Any]) -> EarlySigns:
        """The signs that `state()` was part of, or StateError."""
        signs = cls(kind)
        signs._cusum = saved_number(what, "cusum", state["cusum"], 0)
        signs._zeros = saved_count(what, "zeros", state["zeros"])
        return signs

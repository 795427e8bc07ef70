"""What is no error yet: tensors that became small or zero, and maxima that stay high for long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from asd.tiers.features import WORDS
from asd.tiers.kinds import Kind
from asd.tiers.saved import check_count, check_number
from asd.tiers.trace import WARM, Trace
from asd.verdict import Level

__all__ = ["Finding", "QuietSigns"]

CUSUM_SLACK = 3.0


class Finding(NamedTuple):
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


class QuietSigns:
    """The warnings of one checkpoint that is within its margins.

    Args:
        kind: How far below is too far, and which sum of deviations is too much.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._cusum = 0.0
        self._zeros = 0  # all-zero tensors seen

    def judge_low(self, traces: Sequence[Trace], x: Sequence[float | None]) -> Finding | None:
        """Whether norm or mean are far below the recent smallest.

        Args:
            traces: Of the three features.
            x: Their logarithms; None of one that is 0.
        """
        if traces[0].n < WARM:  # gradients of a training that learns fast fall to a third in its first steps
            return None
        for i, feature in ((1, "l2"), (2, "mean_abs")):
            value, drop = x[i], self._kind.drop[i - 1]
            if value is not None and traces[i].low - value > drop:
                reason = f"{WORDS[feature]} less than 1/{2**drop:.3g} of the recent smallest"
                return Finding(Level.WARNING, reason, feature, limit=2.0 ** (traces[i].low - drop))
        return None

    def judge_zero(self, trace: Trace) -> Finding | None:
        """Whether a tensor is all zero for the first time, at a checkpoint that is known well."""
        self._zeros += 1
        if trace.n >= WARM and self._zeros == 1:
            return Finding(Level.WARNING, "all zero, which it never was before", "max_abs")
        return None

    def sum_deviations(self, trace: Trace, x: float) -> Finding | None:
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
        return Finding(Level.WARNING, "maximum above its mean for many steps", "max_abs")

    def forget(self) -> None:
        """Says that the level is learned anew."""
        self._cusum = 0.0

    def state(self) -> dict[str, Any]:
        """What it remembers, ready for JSON."""
        return {"cusum": self._cusum, "zeros": self._zeros}

    @classmethod
    def of(cls, what: str, kind: Kind, state: Mapping[str, Any]) -> QuietSigns:
        """The signs that `state()` was part of, or StateError."""
        signs = cls(kind)
        signs._cusum = check_number(what, "cusum", state["cusum"], 0)
        signs._zeros = check_count(what, "zeros", state["zeros"])
        return signs

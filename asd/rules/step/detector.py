"""What is said of one checkpoint, and the detector that asks a rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from asd.rules import Rule
from asd.rules.base import largest_root
from asd.rules.readings.features import FEATURES, Features
from asd.verdict import Verdict

__all__ = ["EVENT_FEATURES", "Judged", "RuleDetector"]

EVENT_FEATURES = {"max_abs": "max", "l2": "l2", "mean_abs": "mean"}
"""What events call the features of a tensor."""


class Judged(NamedTuple):
    """What is said of one checkpoint in one step.

    Attributes:
        verdict: What the judge says.
        feature: The feature that it is about, as events call it.
        broken: The limit that was broken, of the level of the verdict; `inf` where none was, as by a tensor that is
            all zero for the first time.
    """

    verdict: Verdict
    feature: str
    broken: float = inf


class RuleDetector:
    """Lets a rule, which knows one number, judge the features of a tensor, as a `History` does.

    Args:
        rule: Its state is the judge's.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.feature: str = rule.feature
        self._field = "l2" if rule.feature == "l2" else "max_abs"

    @property
    def broken(self) -> float:
        """The limit that the last second-level anomaly broke."""
        return self._rule.broken

    def update(self, features: Features) -> Verdict:
        """The rule's verdict on its own feature."""
        if features.non_finite:
            # The largest finite magnitude says nothing then; the norm says inf or nan.
            return self._rule.update(math.nan if math.isfinite(features.l2) else features.l2)
        if self.feature == "max_square":
            return self._rule.update(features.max_abs * features.max_abs)
        return self._rule.update(getattr(features, self._field))

    def limit(self) -> dict[str, float]:
        """The rule's limit, as one of the feature that is compared."""
        limit = self._rule.limit()
        if self.feature == "max_square":
            limit = largest_root(limit)
        return {**dict.fromkeys(FEATURES, math.inf), self._field: limit}

    def second_limit(self) -> dict[str, float]:
        """The same: what a rule allows is not suspicious."""
        return self.limit()

    def least(self) -> dict[str, float]:
        """No tensor is too small for a rule."""
        return dict.fromkeys(FEATURES, 0.0)

    def state(self) -> dict[str, float]:
        """The rule's state."""
        return self._rule.state()

    def restore(self, state: Mapping[str, float]) -> None:
        """Continues from a state of the rule."""
        self._rule.restore(state)

"""What is said of one site, and the detector that asks a rule."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from asd.rules import Rule
from asd.rules.base import largest_root
from asd.verdict import Verdict

__all__ = ["Judged", "RuleDetector"]


class Judged(NamedTuple):
    """What is said of one site in one step.

    Attributes:
        verdict: What the detector says.
        feature: The feature that it is about, as events call it.
        broken: The limit that was broken, of the level of the verdict; `inf` where none was, as by a tensor that is
            all zero for the first time.
    """

    verdict: Verdict
    feature: str
    broken: float = inf


class RuleDetector:
    """Lets a rule judge the statistic of a tensor, as a `History` does.

    Args:
        rule: Its state is the detector's.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.feature: str = rule.feature
        self._squares = rule.feature == "max_square"

    @property
    def broken(self) -> float:
        """The limit that the last second-level anomaly broke."""
        return self._rule.broken

    def update(self, value: float) -> Verdict:
        """The rule's verdict on its own feature."""
        return self._rule.update(value * value if self._squares else value)

    def limit(self) -> float:
        """The rule's limit, as one of the statistic that is compared."""
        limit = self._rule.limit()
        return largest_root(limit) if self._squares else limit

    def second_limit(self) -> float:
        """The same: what a rule allows is not suspicious."""
        return self.limit()

    def least(self) -> float:
        """0: no tensor is too small for a rule."""
        return 0.0

    def state(self) -> dict[str, float]:
        """The rule's state."""
        return self._rule.state()

    def restore(self, state: Mapping[str, float]) -> None:
        """Continues from a state of the rule."""
        self._rule.restore(state)

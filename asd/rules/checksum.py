"""The verdict on a result that was computed again: it fits what it was made of or it doesn't."""

from __future__ import annotations

from collections.abc import Mapping

from asd.rules.base import Rule, check_state
from asd.verdict import Level, Verdict


class ScoreRule(Rule):
    """A score above 1, or none at all, is a first-level anomaly. It remembers nothing.

    The score is the worst residual as a multiple of what rounding explains. The tolerance depends on the operands and
    the type, so it is computed where they are, see `asd.operators.sampled`.

    Args:
        reason: Of a verdict.
    """

    name = "checksum"
    feature = "score"

    def __init__(self, reason: str = "the matrix product does not fit its checksum") -> None:
        self._reason = reason

    def update(self, value: float) -> Verdict:
        """Judges the score of this step."""
        value = float(value)
        if value <= 1.0:
            return Verdict(Level.NORMAL, "", value, 1.0)
        return Verdict(Level.ERROR, self._reason, value, 1.0)

    def limit(self) -> float:
        """Always 1."""
        return 1.0

    def state(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, float]) -> None:
        """Takes the state of a rule that remembers nothing."""
        check_state(self, state)

"""Judges the score of a repeated computation: the result fits its operands or does not."""

from collections.abc import Mapping

from asd.rules.base import Rule, check_state
from asd.verdict import Level, Verdict


class ScoreRule(Rule):
    """Rule without memory: a score above 1, or NaN, is a first-level anomaly.

    The score is the worst residual as a multiple of rounding's effect. The tolerance depends on the operands and the
    type, so it is computed on the device, see `asd.operators.sensors.sampled`.

    Args:
        reason: Reason of a verdict.
    """

    name = "checksum"
    feature = "score"

    def __init__(self, reason: str = "the matrix product does not fit its checksum") -> None:
        self._reason = reason

    def update(self, value: float) -> Verdict:
        """Judges the score of this step."""
        value = float(value)
        return Verdict(Level.NORMAL, "", value, 1.0) if value <= 1.0 else Verdict(Level.ERROR, self._reason, value, 1.0)

    def limit(self) -> float:
        """Returns 1."""
        return 1.0

    def state(self) -> dict[str, float]:
        """Returns an empty state."""
        return {}

    def restore(self, state: Mapping[str, float]) -> None:
        """Accepts an empty state only."""
        check_state(self, state)

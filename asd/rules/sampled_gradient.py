"""A sampled gradient of a parameter: the combined rule, whose strikes are reported and never acted on."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from asd.rules.combined import Combined
from asd.verdict import Level, Verdict

__all__ = ["SampledGradient"]


class SampledGradient(Combined):
    """The combined rule as the vendor's scheme uses it: an abnormal value is a second-level anomaly if it counts.

    Args:
        upper_thresh1: See `Combined`.
        upper_thresh2: See `Combined`.
        counts: Asked at an abnormal value whether it counts, or another one did so shortly before.

    >>> rule = SampledGradient(counts=lambda: True)
    >>> rule.update(inf).level.name
    'WARNING'
    """

    def __init__(
        self, upper_thresh1: float = 1000000, upper_thresh2: float = 100, *, counts: Callable[[], bool]
    ) -> None:
        super().__init__(upper_thresh1, upper_thresh2)
        self._counts = counts

    def update(self, value: float) -> Verdict:
        """Judges the squared maximum of this step; see `Rule.update`."""
        verdict = super().update(value)
        if verdict.level is not Level.ERROR:
            return verdict
        if self._counts():
            self.broken = verdict.limit
            return verdict._replace(level=Level.WARNING)
        return verdict._replace(level=Level.NORMAL, reason=f"{verdict.reason}; another strike was counted just before")

    def limit(self) -> float:
        """`inf`: there is no first level."""
        return inf

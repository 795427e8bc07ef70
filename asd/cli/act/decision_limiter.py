"""Of many decisions that are alike one a minute is told; the metrics count them all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from asd.handler.decision import NEWS, Decision

__all__ = ["DecisionLimiter"]

_SECONDS = 60.0
"""So long decisions that are alike are one line."""
_OF_EVENTS = frozenset({"waiting", "software", "passed", "breaker", "others", "problem"})
"""The news that every single event may bring; what is done about a device is always told."""


class DecisionLimiter:
    """Chooses the decisions that people are told of."""

    def __init__(self) -> None:
        self._told: dict[Hashable, float] = {}

    def of(self, decisions: Sequence[Decision], now: float) -> list[Decision]:
        """The news among decisions.

        Args:
            decisions: In order; of most there is none to tell.
            now: Seconds since the epoch.
        """
        self._told = {
            name: at for name, at in self._told.items() if 0 <= now - at < _SECONDS
        }  # or the clock was set back
        return [each for each in decisions if each.action in NEWS and self._passes(each, now)]

    def _passes(self, decision: Decision, now: float) -> bool:
        # Numbers and times differ in the sentences about a device; what is about none is alike when it says the same.
        name = decision.action, decision.device or decision.reason
        is_known = decision.action in _OF_EVENTS and name in self._told
        self._told.setdefault(name, now)
        return not is_known

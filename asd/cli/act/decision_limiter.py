"""Of many decisions that are alike the first is told, and the others are one line that counts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from asd.handler.decision import NEWS, Decision

__all__ = ["DecisionLimiter"]

_SECONDS = 60.0
"""So long decisions that are alike are one line."""
_OF_EVENTS = frozenset({"waiting", "software", "passed", "breaker", "others", "problem"})
"""The news that every single event may bring; what is done about a device is always told."""


@dataclass
class _Alike:
    began: float
    last: Decision
    more: int = 0


class DecisionLimiter:
    """Chooses the decisions that people are told of."""

    def __init__(self) -> None:
        self._alike: dict[Hashable, _Alike] = {}

    def of(self, decisions: Sequence[Decision], now: float) -> list[Decision]:
        """The news among decisions, and of kinds whose minute is over one more that counts.

        Args:
            decisions: In order; of most there is none to tell.
            now: Seconds since the epoch.
        """
        told = []
        for name, seen in list(self._alike.items()):
            if not 0 <= now - seen.began < _SECONDS:  # or the clock was set back
                del self._alike[name]
                if seen.more:
                    more = f"There were {seen.more} more like this within {_SECONDS:g} s."
                    told.append(replace(seen.last, reason=f"{seen.last.reason} {more}", time=now))
        return told + [each for each in decisions if each.action in NEWS and self._passes(each, now)]

    def _passes(self, decision: Decision, now: float) -> bool:
        if decision.action not in _OF_EVENTS:
            return True
        # Numbers and times differ in the sentences about a device; what is about none is alike when it says the same.
        name = decision.action, decision.device or decision.reason
        seen = self._alike.get(name)
        if seen is None:
            self._alike[name] = _Alike(now, decision)
            return True
        seen.last, seen.more = decision, seen.more + 1
        return False

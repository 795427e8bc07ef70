"""Of many messages that are alike the first are told, and the others are one line that counts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from asd.handler.decision import NEWS, Decision

__all__ = ["SECONDS", "DecisionLimiter", "MessageLimiter"]

SECONDS = 60.0
"""So long things alike are one limiter."""

_OF_EVENTS = frozenset({"waiting", "software", "cleared", "breaker", "others", "problem"})
"""The news that every single event may bring; what is done about a device is always told."""

Thing = TypeVar("Thing")


@dataclass
class _Kind(Generic[Thing]):
    began: float
    told: int
    last: Thing
    more: int = 0


class MessageLimiter(Generic[Thing]):
    """Lets `most` things of a kind through in a minute, and counts the rest.

    >>> limiter = MessageLimiter(most=1)
    >>> [limiter.passes("a device", number, now=float(number)) for number in range(3)]
    [True, False, False]
    >>> limiter.due(59.0), limiter.due(61.0)
    ([], [(2, 2)])

    Args:
        most: So many of a kind are told.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kinds: dict[Hashable, _Kind[Thing]] = {}
        self._newest, self._soonest = -math.inf, math.inf  # when the last minute began, and when the first is over

    def passes(self, kind: Hashable, thing: Thing, now: float) -> bool:
        """Whether a thing is told; ask for `due` first."""
        seen = self._kinds.get(kind)
        if seen is None:
            seen = self._kinds[kind] = _Kind(now, 0, thing)
            self._newest, self._soonest = max(self._newest, now), min(self._soonest, now + SECONDS)
        seen.last = thing
        if seen.told < self._most:
            seen.told += 1
            return True
        seen.more += 1
        return False

    def due(self, now: float) -> list[tuple[Thing, int]]:
        """The last of each kind whose minute is over, and how many were not told; all of them where `now` is inf."""
        if self._newest <= now < self._soonest:
            return []
        over = [name for name, kind in self._kinds.items() if not 0 <= now - kind.began < SECONDS]
        found = [self._kinds.pop(name) for name in over]
        begun = [kind.began for kind in self._kinds.values()]
        self._newest, self._soonest = max(begun, default=-math.inf), min(begun, default=math.inf) + SECONDS
        return [(kind.last, kind.more) for kind in found if kind.more]


class DecisionLimiter:
    """Chooses the decisions that people are told of."""

    def __init__(self) -> None:
        self._limiter: MessageLimiter[Decision] = MessageLimiter(most=1)

    def of(self, decisions: Sequence[Decision], now: float) -> list[Decision]:
        """The news among decisions, and of kinds whose minute is over one more that counts.

        Args:
            decisions: In order; of most there is none to tell.
            now: Seconds since the epoch.
        """
        told = [
            replace(last, reason=f"{last.reason} There were {more} more like this within {SECONDS:g} s.", time=now)
            for last, more in self._limiter.due(now)
        ]
        for each in decisions:
            if each.action in NEWS and (each.action not in _OF_EVENTS or self._limiter.passes(_kind(each), each, now)):
                told.append(each)
        return told


def _kind(decision: Decision) -> Hashable:
    """Numbers and times differ in the sentences about a device; what is about none is alike when it says the same."""
    return decision.action, decision.device or decision.reason

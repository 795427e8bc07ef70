"""What a fault handler counted since it began, for those who watch it."""

from __future__ import annotations

from collections.abc import Sequence

from asd.handler.breaker import Breaker
from asd.handler.decision import ACTIONS, Decision
from asd.handler.handler import FaultHandler

__all__ = ["HandlerTally"]


class HandlerTally:
    """Plain numbers, so that another thread may read them at any time.

    Attributes:
        actions: Decisions by action; all of `asd.handler.decision.ACTIONS` are there.
        events: Events taken in.
        circuit_open: Whether the circuit breaker is open.
        devices_known: Devices heard of.
        devices_isolated: Devices with an open case.
        last_event: When an event was last taken in, in seconds since the epoch; 0 before the first.
        last_look: When `look` was last called.
    """

    def __init__(self) -> None:
        self.actions = dict.fromkeys(ACTIONS, 0)
        self.events = 0
        self.circuit_open = False
        self.devices_known = self.devices_isolated = 0
        self.last_event = self.last_look = 0.0

    def count(self, decisions: Sequence[Decision]) -> None:
        """Counts decisions."""
        for decision in decisions:
            self.actions[decision.action] += 1

    def look(self, handler: FaultHandler, events: int, now: float) -> None:
        """Looks at the store, in the thread of the handler.

        Args:
            handler: Whose.
            events: Events taken in so far.
            now: Seconds since the epoch.
        """
        if events > self.events:
            self.events, self.last_event = events, now
        self.circuit_open = bool(Breaker(handler.store, handler.policy).opened())
        query = "SELECT (SELECT count(*) FROM device), (SELECT count(*) FROM cases WHERE closed IS NULL)"
        self.devices_known, self.devices_isolated = handler.store.db.execute(query).fetchone()
        self.last_look = now

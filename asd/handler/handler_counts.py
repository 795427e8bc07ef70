"""What a fault handler counted since it began, for those who watch it."""

from __future__ import annotations

from collections.abc import Sequence

from asd.handler.decide.breaker import Breaker
from asd.handler.decision import ACTIONS, Decision
from asd.handler.handler import FaultHandler

__all__ = ["HandlerCounts"]


class HandlerCounts:
    """Plain numbers, so that another thread may read them at any time.

    Attributes:
        actions: Decisions by action; all of `asd.handler.decision.ACTIONS` are there.
        events: Events taken in.
        acting: Whether it is the one of several handlers that acts.
        circuit_open: Whether the circuit breaker is open.
        devices_known: Devices heard of.
        devices_isolated: Devices with an open case.
        out: Those of them that the engine has taken out, each as host and name.
        devices_refused: Those of them whose last try the engine refused or failed.
        failed_tries: How often the engine was asked and did not do it.
        run_folders: Folders in which ranks have left something.
        agents: Whether each agent that is pulled from can be reached, by where it is.
        agents_unknown: Whether who the agents are can't be looked up, or there are none, where some are to be.
        agent_failures: How often an agent was asked in vain.
        events_refused: Events that their agent may not tell, such as of devices of other nodes.
        events_missed: Events that agents had dropped before they were fetched.
        last_event: When an event was last taken in, in seconds since the epoch; 0 before the first.
        last_look: When `look` was last called.
    """

    def __init__(self) -> None:
        self.actions = dict.fromkeys(ACTIONS, 0)
        self.events = 0
        self.acting = self.circuit_open = False
        self.run_folders = 0
        self.agents: dict[str, bool] = {}
        self.agents_unknown = False
        self.out: list[tuple[str, str]] = []
        self.agent_failures = self.events_refused = self.events_missed = 0
        self.devices_known = self.devices_isolated = self.devices_refused = self.failed_tries = 0
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
        self.acting = handler.acts
        self.circuit_open = bool(Breaker(handler.store, handler.policy).opened())
        self.failed_tries = handler.engine.failed_tries
        query = (
            "SELECT (SELECT count(*) FROM device), count(*), count(*) FILTER (WHERE attempts > 0) FROM cases "
            "WHERE closed IS NULL"
        )
        self.devices_known, self.devices_isolated, self.devices_refused = handler.store.db.execute(query).fetchone()
        self.out = handler.store.db.execute(
            "SELECT DISTINCT host, name FROM cases JOIN device ON device.n = cases.device "
            "WHERE closed IS NULL AND state IN ('isolated', 'releasing')"
        ).fetchall()
        self.last_look = now

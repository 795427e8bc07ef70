"""Counts of a fault handler since it began, for its metrics."""

from collections.abc import Sequence

from asd.event import Event
from asd.handler.db.fleet import Fleet, Used
from asd.handler.handler import FaultHandler
from asd.handler.model.decision import ACTIONS, Decision

_FLEET_SECONDS = 60.0


class HandlerCounts:
    """Counts as plain numbers, which another thread may read at any time."""

    def __init__(self) -> None:
        # numbers by the name of their metric without `asd_handler_`, whose help describes them
        self.numbers: dict[str, float] = {}
        # decisions by action; all of `asd.handler.model.decision.ACTIONS` are there
        self.actions = dict.fromkeys(ACTIONS, 0)
        self.agents: dict[str, bool] = {}  # whether each agent that is pulled from answers, by its address
        self.isolated = 0  # devices that the scheduler has isolated, or that are recorded as such
        # those that the scheduler has isolated, each as host, name and physical number; -1 where that is unknown
        self.out: list[tuple[str, str, int]] = []
        # days in which devices were watched, and devices found faulty; looked up once a minute
        self.fleet: tuple[list[Used], list[tuple[float, Used]]] = [], []
        self._looked = 0.0

    def count(self, decisions: Sequence[Decision]) -> None:
        """Counts decisions."""
        for decision in decisions:
            self.actions[decision.action] += 1

    def look(self, handler: FaultHandler, events: int, now: float) -> None:
        """Updates the numbers from the handler's store, in its thread, after `events` events in all."""
        db, numbers = handler.store.db, self.numbers
        if not 0 <= now - self._looked < _FLEET_SECONDS:
            self._looked, fleet = now, Fleet(handler.store)
            self.fleet = fleet.used(), fleet.faults()
        if events > numbers.get("events", 0):
            numbers["last_event"] = now
        query = (
            "SELECT (SELECT count(*) FROM device), count(*), count(*) FILTER (WHERE attempts > 0) FROM cases "
            "WHERE closed IS NULL"
        )
        names = ("devices_known", "devices_isolated", "devices_refused")
        numbers |= {
            "acting": handler.acts,
            "circuit_open": bool(handler.triage.breaker.opened()),
            "events": events,
            "failed_tries": handler.engine.failed_tries,
            "last_look": now,
            **dict(zip(names, db.execute(query).fetchone(), strict=True)),
        }
        out = handler.triage.cases.in_state("isolated", "releasing")  # a replaced device may have one too
        self.isolated = len({each.named[:2] for each in out})
        out = [each for each in out if each.isolator != "none"]  # which only records
        self.out = list({(*each.named[:2], Event.from_json(each.event).device_number) for each in out})

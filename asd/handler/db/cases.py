"""Cases: from the decision to take a device out until it is given back.

    isolating ──► isolated ──► releasing ──► released
     │     ▲          └──► released, others  (the engine says it is not ours any more)
     │     └─► others  (while somebody else holds it out)
     └──► dropped
    dry ──► released                         (a dry run touches nothing)

An engine that fails or refuses is asked again; only a person drops a case.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from asd.event import Event
from asd.handler.db.store import Store
from asd.verdict import Level

BY_HAND = "it was released by hand"
NO_FAULT = "it had no fault for"
"""Begins the reason of a release that nobody asked for."""
REVOKED = "its strikes turned out to be software or data"
TEST_WANTED = "; it is given back after a stress test that it passes"
"""Ends the reason of a case whose test was asked for."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case; times in seconds since the epoch.

    Attributes:
        n: Its number.
        device: Number of the device.
        state: See above.
        opened: When it was decided.
        closed: When it ended; None while it is open.
        reason: Why, in one sentence.
        verdict: One of `asd.event.VERDICTS`, or empty.
        event: The event that led to it, in JSON.
        last_fault: When the device was last heard to be at fault.
        attempts: How often the engine failed in a row.
        next_try: When it is asked next.
        error: Its last failure.
        isolator: Which engine.
        why_released: Who gave it back, or is to.
        host_since: Its host was made then, or the engine had none then and has one if one was made later; 0 before it
            was asked.
    """

    n: int
    device: int
    state: str
    opened: float
    closed: float | None
    reason: str
    verdict: str
    event: str
    last_fault: float
    attempts: int
    next_try: float
    error: str
    isolator: str
    why_released: str
    host_since: float


class Cases:
    """The cases in the store. What changes something is used within a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open_case(self, device: int) -> Case | None:
        """The open case of a device."""
        return self._last("device = ? AND closed IS NULL", device)

    def last(self, device: int) -> Case | None:
        """The last case of a device, open or not."""
        return self._last("device = ?", device)

    def about(self, event: str) -> Case | None:
        """The case to which this event, as it is kept, has led."""
        return self._last("event = ?", event)

    def get(self, number: int) -> Case:
        """The case of a number."""
        case = self._last("n = ?", number)
        if case is None:
            raise KeyError(number)
        return case

    def in_state(self, *states: str) -> list[Case]:
        """All open cases in one of these states, the oldest first."""
        return self._select(f"closed IS NULL AND state IN ({', '.join('?' * len(states))}) ORDER BY n", *states)

    def closed(self, most: int) -> list[Case]:
        """The last cases that ended, the oldest first."""
        return self._select("closed IS NOT NULL ORDER BY n DESC LIMIT ?", most)[::-1]

    def passed_a_test(self, case: Case) -> bool:
        """Whether the last stress test of its device was after its last fault, and found nothing wrong."""
        found = self._store.db.execute(
            "SELECT 1 FROM device WHERE n = ? AND sound AND tested > ?", (case.device, case.last_fault)
        )
        return found.fetchone() is not None

    def was_replaced(self, case: Case) -> bool:
        """Whether other hardware was heard of in the place of its device since."""
        found = self._store.db.execute(
            "SELECT 1 FROM device AS old JOIN device AS new USING (host, name) WHERE old.n = ? AND new.n <> old.n "
            "AND old.serial <> '' AND new.serial <> '' AND new.last > old.last",
            (case.device,),
        )
        return found.fetchone() is not None

    def insert(self, **values: object) -> Case:
        """Keeps a new case."""
        return self.get(self._store.insert("cases", **values))

    def change(self, number: int, **values: object) -> None:
        """Sets fields of a case."""
        columns = ", ".join(f"{name} = ?" for name in values)
        self._store.db.execute(f"UPDATE cases SET {columns} WHERE n = ?", (*values.values(), number))

    def tell(self, case: Case, kind: str, reason: str, now: float) -> None:
        """Puts the event of an isolation or recovery into the outbox; the same fact always has the same id."""
        event = _event(case, kind, reason, now)
        db = self._store.db
        db.execute("INSERT OR IGNORE INTO outbox (id, event) VALUES (?, ?)", (event.id, event.to_json()))
        db.execute("INSERT OR IGNORE INTO seen (id, received) VALUES (?, ?)", (bytes.fromhex(event.id), now))

    def untell(self, case: Case) -> None:
        """Takes the isolation of this case out of the outbox, where it was not published yet."""
        identity = _event(case, "isolation", "", 0.0).id
        self._store.db.execute("DELETE FROM outbox WHERE id = ? AND sent IS NULL", (identity,))

    def was_told(self, case: Case) -> bool:
        """Whether the isolation of this case was put into the outbox."""
        identity = _event(case, "isolation", "", 0.0).id
        return self._store.db.execute("SELECT 1 FROM outbox WHERE id = ?", (identity,)).fetchone() is not None

    def unsent(self) -> list[tuple[int, Event]]:
        """What is still to be published, in order."""
        rows = self._store.db.execute("SELECT n, event FROM outbox WHERE sent IS NULL ORDER BY n")
        return [(int(number), Event.from_json(text)) for number, text in rows]

    def mark_sent(self, number: int, now: float) -> None:
        """Notes that it was published."""
        self._store.db.execute("UPDATE outbox SET sent = ? WHERE n = ?", (now, number))

    def _last(self, where: str, *values: object) -> Case | None:
        found = self._select(f"{where} ORDER BY n DESC LIMIT 1", *values)
        return found[0] if found else None

    def _select(self, where: str, *values: object) -> list[Case]:
        return [Case(*row) for row in self._store.db.execute(f"SELECT {_COLUMNS} FROM cases WHERE {where}", values)]


def by_people(why_released: str) -> bool:
    """Whether people gave a device back, and not the handler by itself."""
    return NO_FAULT not in why_released and REVOKED not in why_released


_COLUMNS = ", ".join(each.name for each in fields(Case))


def _event(case: Case, kind: str, reason: str, now: float) -> Event:
    cause = Event.from_json(case.event)
    return replace(cause, kind=kind, reason=reason, time=now, verdict=case.verdict, key=cause.id, level=Level.NORMAL)

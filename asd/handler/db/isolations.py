"""Cases: from the decision to take a device out until it is given back.

    isolating ──► isolated ──► releasing ──► released
        │             └──► released, others  (the engine says it is not ours any more)
        └──► others, dropped
    dry ──► released                         (a dry run touches nothing)

An engine that fails or refuses leaves a case where it is, and is asked again; only a person drops it.

What is intended is written before the engine is asked, what was done together with the event that tells of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from asd.event import Event
from asd.handler.db.schema import read_event
from asd.handler.db.store import Store
from asd.verdict import Level

__all__ = ["BY_HAND", "NO_FAULT", "TEST_WANTED", "Isolation", "Isolations"]

BY_HAND = "it was released by hand"
NO_FAULT = "it had no fault for"
"""Begins the reason of a release that nobody asked for."""
TEST_WANTED = "; it had no fault since, and is given back after a stress test that it passes"
"""Ends the reason of a case whose test was asked for."""

_COLUMNS = (
    "n, device, state, opened, closed, reason, verdict, event, last_fault, attempts, next_try, error, isolator, "
    "why_released"
)


@dataclass(frozen=True, slots=True)
class Isolation:
    """One case; times in seconds since the epoch.

    Attributes:
        n: Its number.
        device: Number of the device.
        state: See above.
        opened: When it was decided.
        closed: When it ended; None while it is open.
        reason: Why, in one sentence.
        verdict: One of `asd.event.VERDICTS`, or empty.
        event: The event that led to it, as `read_event` reads it.
        last_fault: When the device was last heard to be at fault.
        attempts: How often the engine failed in a row.
        next_try: When it is asked next.
        error: Its last failure.
        isolator: Which engine.
        why_released: Who gave it back, or is to.
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


class Isolations:
    """The cases in the store. What changes something is used within a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open_case(self, device: int) -> Isolation | None:
        """The open case of a device."""
        return self._one("device = ? AND closed IS NULL", device)

    def last(self, device: int) -> Isolation | None:
        """The last case of a device, open or not."""
        return self._one("device = ? ORDER BY n DESC LIMIT 1", device)

    def get(self, number: int) -> Isolation:
        """The case of a number."""
        case = self._one("n = ?", number)
        if case is None:
            raise KeyError(number)
        return case

    def in_state(self, *states: str) -> list[Isolation]:
        """All open cases in one of these states, the oldest first."""
        marks = ", ".join("?" * len(states))
        rows = self._store.db.execute(
            f"SELECT {_COLUMNS} FROM cases WHERE closed IS NULL AND state IN ({marks}) ORDER BY n", states
        )
        return [Isolation(*row) for row in rows]

    def passed_a_test(self, case: Isolation) -> bool:
        """Whether the last stress test of its device was after its last fault, and found nothing wrong."""
        return (
            self._store.db.execute(
                "SELECT 1 FROM device WHERE n = ? AND sound AND tested > ?", (case.device, case.last_fault)
            ).fetchone()
            is not None
        )

    def closed(self, most: int) -> list[Isolation]:
        """The last cases that ended, the oldest first."""
        rows = self._store.db.execute(
            f"SELECT {_COLUMNS} FROM cases WHERE closed IS NOT NULL ORDER BY n DESC LIMIT ?", (most,)
        ).fetchall()
        return [Isolation(*row) for row in reversed(rows)]

    def about(self, device: int, event: str) -> Isolation | None:
        """The case of a device to which this event, as it is kept, has led."""
        rows = self._store.db.execute(
            f"SELECT {_COLUMNS} FROM cases WHERE device = ? AND event = ? ORDER BY n DESC LIMIT 1", (device, event)
        ).fetchall()
        return Isolation(*rows[0]) if rows else None

    def insert(self, device: int, values: Mapping[str, object]) -> Isolation:
        """Keeps a case that began elsewhere."""
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        row = self._store.db.execute(
            f"INSERT INTO cases (device, {names}) VALUES (?, {marks}) RETURNING n", (device, *values.values())
        ).fetchone()
        return self.get(int(row[0]))

    def begin(self, device: int, state: str, event: Event, reason: str, verdict: str, isolator: str, now: float) -> int:
        """Opens a case; returns its number."""
        row = self._store.db.execute(
            "INSERT INTO cases (device, state, opened, reason, verdict, event, last_fault, isolator) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING n",
            (device, state, now, reason, verdict, event.to_json(), now, isolator),
        ).fetchone()
        return int(row[0])

    def change(self, number: int, **values: object) -> None:
        """Sets fields of a case."""
        columns = ", ".join(f"{name} = ?" for name in values)
        self._store.db.execute(f"UPDATE cases SET {columns} WHERE n = ?", (*values.values(), number))

    def tell(self, case: Isolation, kind: str, reason: str, now: float) -> None:
        """Puts the event of an isolation or recovery into the outbox; the same fact always has the same id."""
        event = _event(case, kind, reason, now)
        db = self._store.db
        db.execute("INSERT OR IGNORE INTO outbox (id, event) VALUES (?, ?)", (event.id, event.to_json()))
        db.execute("INSERT OR IGNORE INTO seen (id, received) VALUES (?, ?)", (bytes.fromhex(event.id), now))

    def untell(self, case: Isolation) -> None:
        """Takes the isolation of this case out of the outbox, where it was not published yet."""
        identity = _event(case, "isolation", "", 0.0).id
        self._store.db.execute("DELETE FROM outbox WHERE id = ? AND sent IS NULL", (identity,))

    def was_told(self, case: Isolation) -> bool:
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

    def _one(self, where: str, value: int) -> Isolation | None:
        row = self._store.db.execute(f"SELECT {_COLUMNS} FROM cases WHERE {where}", (value,)).fetchone()
        return Isolation(*row) if row else None


def _event(case: Isolation, kind: str, reason: str, now: float) -> Event:
    cause = read_event(case.event)
    return replace(cause, kind=kind, reason=reason, time=now, verdict=case.verdict, key=cause.id, level=Level.NORMAL)

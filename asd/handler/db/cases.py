"""Cases: from the decision to isolate a device until it is released. Each is in one state of `TRANSITIONS`."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from asd.event import Event
from asd.handler.db.store import Store
from asd.isolator import Device
from asd.verdict import Level

State = Literal["dry", "isolating", "others", "isolated", "releasing", "released", "dropped"]
"""`dry`: a dry run would have isolated the device. `others`: it is isolated by others; once it was isolated or
released, the case ends with that. The names of the rest describe what is being done or was done."""
Happening = Literal["isolated", "held", "free", "taken", "release", "fault", "drop"]
"""`isolated`, `held`: asked to isolate, the engine did it, or somebody else holds the device out. `free`, `taken`: it
is not ours, or not any more, and nobody or somebody else holds it out. `release`: it is wanted back. `fault`: it was at
fault again. `drop`: the case ends, and the engine is not asked."""
_GOES_ON: dict[Happening, State] = dict.fromkeys(("isolated", "held", "release"), "releasing")
_OUT: dict[Happening, State] = {"free": "released", "taken": "others", "fault": "isolating", "drop": "dropped"}
TRANSITIONS: dict[State, dict[Happening, State]] = {
    "dry": {"release": "dropped", "free": "dropped"},  # the scheduler never had it, and the breaker does not count it
    "isolating": {
        "isolated": "isolated",
        "held": "others",
        "free": "released",
        "release": "releasing",
        "drop": "dropped",
    },
    "others": {"isolated": "isolated", "held": "others", "release": "releasing", "drop": "dropped"},
    "isolated": {**_OUT, "release": "releasing"},
    "releasing": {**_OUT, **_GOES_ON},
    # By a person, while the scheduler was at work.
    "dropped": {"isolated": "releasing", "held": "dropped", "free": "dropped", "taken": "dropped"},
    "released": {},
}
Cause = Literal["strikes", "moved", "replay", "stress"]
"""Cause of a case: strikes, the same value under another rank, the verdict of a replay or of a stress test."""
Ending = Literal["", "quiet", "acquitted", "passed", "person", "engine", "replaced", "restart", "predecessor"]
"""Reason of an ending: no fault for long enough; its strikes were software or data; a stress test passed while others
isolated the device; a person ended it, or released the device on the scheduler; its hardware was replaced; a handler
in earnest follows a dry run or the isolator `none`; the handler that acted before did not isolate it."""
BY_HANDLER = frozenset({"quiet", "acquitted"})  # endings after which the strikes of the device count on

NOBODY = Device("", "", -1)


@dataclass(frozen=True, slots=True)
class Case:
    """One case; times in seconds since the epoch, sentences for people alone."""

    n: int  # its number
    device: int  # number of the device
    state: State
    opened: float  # when it was decided
    closed: float | None  # when it ended; None while it is open
    cause: Cause  # its cause
    reason: str  # why, in words
    verdict: str  # one of `asd.event.VERDICTS`, or empty
    event: str  # the event that led to it, in JSON
    event_id: str
    last_fault: float  # time of the device's last fault
    attempts: int  # failures of the scheduler in a row
    next_try: float  # when it is asked next
    error: str  # its last failure
    isolator: str  # name of the isolator
    ending: Ending
    why_released: str  # the ending in words
    host_since: float  # its host was made then, or later if the engine had none then; 0 before it was asked
    wants_test: bool  # whether a stress test that is passed releases the device
    named: Device = NOBODY  # the device by its names, as they are now


class Cases:
    """The cases in the store. What changes something is used within a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open_case(self, device: int) -> Case | None:
        """Returns the open case of a device."""
        return self._last("device = ? AND closed IS NULL", device)

    def last(self, device: int) -> Case | None:
        """Returns the open case of a device, else the last one that ended."""
        return self._last("device = ?", device)

    def about(self, event_id: str) -> Case | None:
        """Returns the case to which the event of an id has led."""
        return self._last("event_id = ?", event_id)

    def get(self, number: int) -> Case:
        """Returns the case of a number."""
        return self._select("n = ?", number)[0]

    def in_state(self, *states: str) -> list[Case]:
        """Returns all open cases in one of these states, the oldest first."""
        return self._select(f"closed IS NULL AND state IN ({', '.join('?' * len(states))}) ORDER BY n", *states)

    def closed(self, most: int) -> list[Case]:
        """Returns the last cases that ended, the oldest first."""
        return self._select("closed IS NOT NULL ORDER BY n DESC LIMIT ?", most)[::-1]

    def insert(self, **values: object) -> Case:
        """Keeps a new case."""
        return self.get(self._store.insert("cases", **values))

    def change(self, number: int, **values: object) -> None:
        """Sets fields of a case; its state only where all of a case is copied."""
        columns = ", ".join(f"{name} = ?" for name in values)
        self._store.db.execute(f"UPDATE cases SET {columns} WHERE n = ?", (*values.values(), number))

    def move(self, number: int, happening: Happening, now: float, **values: object) -> Case:
        """Brings a case into the state that `TRANSITIONS` has for it; the store knows what people did meanwhile."""
        case = self.get(number)
        state = TRANSITIONS[case.state][happening]
        ended = state in ("released", "dropped") or (state, happening) == ("others", "taken")
        changed: dict[str, Any] = {**values, "state": state, "closed": now if ended else None}
        self.change(number, **changed)
        return replace(case, **changed)

    def tell(self, case: Case, kind: Literal["isolation", "recovery"], reason: str, now: float) -> None:
        """Puts the event of an isolation or recovery into the outbox; the same fact always has the same id."""
        by = ("handler" if case.ending in BY_HANDLER else "person") if kind == "recovery" else ""
        told: dict[str, Any] = {"kind": kind, "reason": reason, "time": now, "level": Level.NORMAL, "recovered_by": by}
        event = replace(Event.from_json(case.event), verdict=case.verdict, key=case.event_id, **told)
        db, number = self._store.db, event.id
        query = "INSERT OR IGNORE INTO outbox (id, about, kind, event) VALUES (?, ?, ?, ?)"
        db.execute(query, (number, case.event_id, kind, event.to_json()))
        db.execute("INSERT OR IGNORE INTO seen (id, received) VALUES (?, ?)", (bytes.fromhex(number), now))

    def untell(self, case: Case) -> None:
        """Takes the isolation of this case out of the outbox, where it was not published yet."""
        query = "DELETE FROM outbox WHERE about = ? AND kind = 'isolation' AND sent IS NULL"
        self._store.db.execute(query, (case.event_id,))

    def was_told(self, case: Case) -> bool:
        """Returns whether the isolation of this case was put into the outbox."""
        return self._store.has("outbox WHERE about = ? AND kind = 'isolation'", case.event_id)

    def unsent(self) -> list[tuple[int, Event]]:
        """Returns the events that are still to be published, in order."""
        rows = self._store.db.execute("SELECT n, event FROM outbox WHERE sent IS NULL ORDER BY n")
        return [(int(number), Event.from_json(text)) for number, text in rows]

    def _last(self, where: str, *values: object) -> Case | None:
        return next(iter(self._select(f"{where} ORDER BY closed IS NULL DESC, n DESC LIMIT 1", *values)), None)

    def _select(self, where: str, *values: object) -> list[Case]:
        rows = self._store.db.execute(f"{_CASES} WHERE {where}", values)
        return [replace(Case(*row[:-3]), wants_test=bool(row[-4]), named=Device(*row[-3:])) for row in rows]


_COLUMNS = ", ".join(each.name for each in fields(Case)[:-1])
_NAMES = "SELECT n AS number, host, name, rank FROM device"
_CASES = f"SELECT {_COLUMNS}, host, name, rank FROM cases JOIN ({_NAMES}) ON number = device"

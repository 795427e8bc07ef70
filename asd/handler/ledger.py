"""What the events add up to, for programs that show it and isolate nobody; of bounded size."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from asd.errors import StateError
from asd.event import LEVEL_NAMES, VERDICTS, Event
from asd.handler.db.store import Store
from asd.handler.decide.strikes import Strikes
from asd.handler.device_record import DeviceRecord
from asd.handler.identity import whole_event
from asd.handler.policy import Policy
from asd.origin import Origin
from asd.records import members
from asd.verdict import Level

__all__ = ["Ledger", "RankCounts"]

VERSION = 5
_TABLES = ("device", "strike", "software", "sighting")
_MOST_IDS = 20_000
_ID = 16  # characters of an id that are kept: that any two of 20,000 agree has a chance of 1 in 10**11
_MOST_RUNS = 64
_MOST_RANKS = 1024
_MOST_DEVICES = 1024
_MOST_FACTS = 5000  # strikes, sightings, and steps known to be software
_PRUNE_EVENTS = 1000


@dataclass(slots=True)
class RankCounts:
    """What was counted of one rank of one run.

    Attributes:
        anomalies: Anomalies by level, `first` and `second`.
        verdicts: Replays by verdict.
        last_anomaly: When the last anomaly was, in seconds since the epoch; 0 before the first.
        last_events: Per level the id and the time of its last anomaly.
    """

    anomalies: dict[str, int] = field(default_factory=lambda: {"first": 0, "second": 0})
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    last_anomaly: float = 0.0
    last_events: dict[str, tuple[str, float]] = field(default_factory=dict)


class Ledger:
    """Counts events; every method may be called from any thread.

    It keeps the last 20,000 ids, the last 64 runs with at most 1024 ranks together, and the last 1024 devices.

    Args:
        policy: What a strike is, how long it counts, and how many make a device suspect; an attribute too.
        clock: Seconds since the epoch.
    """

    def __init__(self, policy: Policy | None = None, clock: Callable[[], float] = time.time) -> None:
        self.policy = policy or Policy()
        self._clock = clock
        self._lock = threading.Lock()
        self._ids: deque[str] = deque()
        self._known: set[str] = set()
        self._runs: dict[str, dict[Origin, RankCounts]] = {}  # the last used stands last
        self._isolated: dict[tuple[str, str], None] = {}
        self._store = Store(None)
        self._strikes = Strikes(self._store, self.policy)
        self._unpruned = 0

    def add(self, event: Event) -> bool:
        """Counts `event`; returns False for one whose id is among the last 20,000 already."""
        identity = event.id
        short = identity[:_ID]
        with self._lock:
            if short in self._known:
                return False
            self._known.add(short)
            self._ids.append(short)
            if len(self._ids) > _MOST_IDS:
                self._known.remove(self._ids.popleft())
            self._count(event, identity)
        return True

    def counts(self) -> dict[Origin, RankCounts]:
        """What was counted of each rank; a copy."""
        with self._lock:
            return self._copies()

    def records(self, now: float) -> dict[tuple[str, str], DeviceRecord]:
        """Every device that has strikes or is isolated, at `now` in seconds since the epoch, by host and name."""
        with self._lock:
            isolated = self._isolated.copy()
            found = self._strikes.of_all(now)
            named = self._store.db.execute("SELECT n, host, name, rank FROM device ORDER BY last, n").fetchall()
        in_use = {(host, name): (number, rank) for number, host, name, rank in named}  # in place of what was replaced
        strikes = {key: found[number].strikes for key, (number, _) in in_use.items() if number in found}
        limit = self.policy.strikes
        return {
            key: DeviceRecord(
                *key,
                in_use.get(key, (0, -1))[1],
                strikes=strikes.get(key, 0),
                limit=limit,
                state="isolated" if key in isolated else "in use",
            )
            for key in (*strikes, *(each for each in isolated if each not in strikes))
        }

    def state(self) -> dict[str, Any]:
        """The counts and the ids, JSON-able and bounded."""
        with self._lock:
            return {
                "version": VERSION,
                "ids": "".join(self._ids),
                "tallies": [{**members(origin), **members(counts)} for origin, counts in self._copies().items()],
                "isolated": [list(key) for key in self._isolated],
                "strikes": {table: self._rows(table) for table in _TABLES},
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            StateError: It is no such state. Nothing was changed then.
        """
        if state.get("version") != VERSION:
            raise StateError(f"the saved ledger has version {state.get('version')!r}; valid is {VERSION}.")
        strikes = Store(None)
        try:
            text = state["ids"].encode("ascii").decode()
            ids = [text[place : place + _ID] for place in range(0, len(text), _ID)][-_MOST_IDS:]
            runs: dict[str, dict[Origin, RankCounts]] = {}
            for saved in state["tallies"]:
                origin, counts = _counts_of(saved)
                runs.setdefault(origin.run, {})[origin] = counts
            isolated = {(str(host), str(device)): None for host, device in state["isolated"]}
            for table in _TABLES:
                _fill_table(strikes, table, state["strikes"][table])
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, StateError) as error:
            raise StateError(f"the saved ledger can't be used: {error!r}.") from error
        with self._lock:
            self._ids, self._known = deque(ids), set(ids)
            self._runs, self._isolated = runs, isolated
            self._store, self._strikes = strikes, Strikes(strikes, self.policy)

    def _rows(self, table: str) -> dict[str, list[Any]]:
        found = self._store.db.execute(f"SELECT * FROM {table}")
        return {
            "columns": [each[0] for each in found.description],
            "rows": [[{"hex": value.hex()} if isinstance(value, bytes) else value for value in row] for row in found],
        }

    def _copies(self) -> dict[Origin, RankCounts]:
        return {origin: copy.deepcopy(counts) for ranks in self._runs.values() for origin, counts in ranks.items()}

    def _count(self, event: Event, identity: str) -> None:
        self._count_strikes(event)
        if event.kind == "anomaly" and event.level is not Level.NORMAL:
            level = LEVEL_NAMES[event.level]
            counts = self._counts(event.origin)
            counts.anomalies[level] += 1
            counts.last_anomaly = event.time
            counts.last_events[level] = identity, event.time
        elif event.kind == "replay":
            if event.verdict:
                self._counts(event.origin).verdicts[event.verdict] += 1
        elif event.kind in ("isolation", "recovery", "stress"):
            self._counts(event.origin)
        if event.kind in ("isolation", "recovery"):
            key = event.host, event.device
            self._isolated.pop(key, None)
            if event.kind == "isolation":
                self._isolated[key] = None
                if len(self._isolated) > _MOST_DEVICES:
                    del self._isolated[next(iter(self._isolated))]

    def _count_strikes(self, event: Event) -> None:
        if not math.isfinite(event.time):
            return
        now = self._clock()
        try:
            with self._store.transaction():
                self._strikes.count(whole_event(event), now)
        except (OverflowError, ValueError):  # its numbers are out of every range
            self._strikes.forget_cache()
            return
        self._unpruned += 1
        if self._unpruned >= _PRUNE_EVENTS:
            self._prune(now)

    def _prune(self, now: float) -> None:
        """Forgets what nothing asks for any more, and the oldest of too much."""
        self._unpruned = 0
        with self._store.transaction() as db:
            self._store.prune(now - self.policy.memory_seconds, now - self.policy.strike_memory_seconds)
            for table in ("strike", "software", "sighting"):
                newest = f"SELECT n FROM {table} ORDER BY n DESC LIMIT 1 OFFSET {_MOST_FACTS}"
                db.execute(f"DELETE FROM {table} WHERE n <= ({newest})")
            kept = f"SELECT n FROM device ORDER BY last DESC LIMIT {_MOST_DEVICES}"
            db.execute(f"DELETE FROM device WHERE n NOT IN ({kept})")
            db.execute("DELETE FROM strike WHERE device NOT IN (SELECT n FROM device)")
        self._strikes.forget_cache()

    def _counts(self, origin: Origin) -> RankCounts:
        ranks = self._runs.pop(origin.run, None) or {}
        self._runs[origin.run] = ranks
        counts = ranks.get(origin)
        if counts is None:
            counts = ranks[origin] = RankCounts()
            self._shrink()
        return counts

    def _shrink(self) -> None:
        """Forgets the runs that were not heard of for longest, and of a single huge one its first ranks."""
        runs = self._runs
        while len(runs) > 1 and (len(runs) > _MOST_RUNS or sum(map(len, runs.values())) > _MOST_RANKS):
            del runs[next(iter(runs))]
        for ranks in self._runs.values():
            while len(ranks) > _MOST_RANKS:
                del ranks[next(iter(ranks))]


def _fill_table(store: Store, table: str, saved: Any) -> None:
    known = [each[0] for each in store.db.execute(f"SELECT * FROM {table} LIMIT 0").description]
    columns, rows = saved["columns"], saved["rows"]
    if not set(columns) <= set(known):
        raise ValueError(f"{table} has no columns {columns!r:.200}")
    values = [[bytes.fromhex(each["hex"]) if isinstance(each, dict) else each for each in row] for row in rows]
    with store.transaction() as db:
        marks = ", ".join("?" * len(columns))
        db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", values)


def _counts_of(saved: Any) -> tuple[Origin, RankCounts]:
    origin = Origin(**{each.name: saved[each.name] for each in fields(Origin) if each.name in saved})
    return origin, RankCounts(
        anomalies={level: int(saved["anomalies"][level]) for level in ("first", "second")},
        verdicts={verdict: int(saved["verdicts"][verdict]) for verdict in VERDICTS},
        last_anomaly=float(saved["last_anomaly"]),
        last_events={str(level): (str(event), float(time)) for level, (event, time) in saved["last_events"].items()},
    )

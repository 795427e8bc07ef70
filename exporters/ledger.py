"""Sums of events, of bounded size, for programs that show them and isolate no device."""

import copy
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from asd.event import LEVEL_NAMES, VERDICTS, Event
from asd.handler.db.store import Store
from asd.handler.decide.strikes import Strikes
from asd.handler.device_record import DeviceRecord
from asd.handler.model.policy import Policy
from asd.origin import Origin
from asd.verdict import Level

_MOST_IDS = 20_000
_ID = 16  # characters of an id that are kept: that any two of 20,000 agree has a chance of 1 in 10**11
_MOST_RUNS = 64
_MOST_RANKS = 1024
_MOST_DEVICES = 1024
_MOST_FACTS = 5000  # strikes, sightings, and steps known to be software
_PRUNE_EVENTS = 1000


@dataclass(slots=True)
class RankCounts:
    """Counts of one rank of one run."""

    anomalies: dict[str, int] = field(default_factory=lambda: {"first": 0, "second": 0})  # anomalies by level
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))  # replays by verdict
    last_anomaly: float = 0.0  # time of the last anomaly, in seconds since the epoch; 0 before the first
    last_events: dict[str, tuple[str, float]] = field(default_factory=dict)  # id and time of the last anomaly, by level


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
        self._known: dict[str, None] = {}  # ids, the last one last
        self._runs: dict[str, dict[Origin, RankCounts]] = {}  # the last used stands last
        self._isolated: dict[tuple[str, str], None] = {}
        self._store = Store(None)
        self._strikes = Strikes(self._store, self.policy)
        self._unpruned = 0

    def add(self, event: Event, now: float | None = None) -> bool:
        """Counts `event` as of `now`, by default the clock's; returns False for one whose id is known already."""
        identity = event.id
        short = identity[:_ID]
        with self._lock:
            if short in self._known:
                return False
            self._known[short] = None
            if len(self._known) > _MOST_IDS:
                del self._known[next(iter(self._known))]
            self._count(event, identity, now)
        return True

    def counts(self) -> dict[Origin, RankCounts]:
        """Returns a copy of the counts of each rank."""
        with self._lock:
            return {origin: copy.deepcopy(counts) for ranks in self._runs.values() for origin, counts in ranks.items()}

    def records(self, now: float) -> dict[tuple[str, str], DeviceRecord]:
        """Returns devices that have strikes or are isolated, at `now` in seconds since the epoch, by host and name."""
        with self._lock:
            isolated = self._isolated.copy()
            found = self._strikes.of_all(now)
            named = self._store.db.execute("SELECT n, host, name, rank FROM device ORDER BY last, n").fetchall()
        in_use = {(host, name): (number, rank) for number, host, name, rank in named}  # in place of what was replaced
        strikes = {key: found[number].strikes for key, (number, _) in in_use.items() if number in found}
        return {
            key: DeviceRecord(
                *key,
                in_use.get(key, (0, -1))[1],
                strikes=strikes.get(key, 0),
                limit=self.policy.strikes,
                state="isolated" if key in isolated else "in use",
            )
            for key in (*strikes, *(each for each in isolated if each not in strikes))
        }

    def recount(self, events: Iterable[Event]) -> None:
        """Counts these events instead of all before, each as of its own time."""
        fresh = Ledger(self.policy, self._clock)
        for event in events:
            fresh.add(event, event.time)
        with self._lock:
            self._known, self._unpruned = fresh._known, fresh._unpruned
            self._runs, self._isolated = fresh._runs, fresh._isolated
            self._store, self._strikes = fresh._store, fresh._strikes

    def _count(self, event: Event, identity: str, now: float | None) -> None:
        self._count_strikes(event, now)
        if event.kind == "anomaly" and event.level is not Level.NORMAL:
            level = LEVEL_NAMES[event.level]
            counts = self._counts(event.origin)
            counts.anomalies[level] += 1
            counts.last_anomaly = max(counts.last_anomaly, event.time)
            counts.last_events[level] = identity, event.time
        elif event.kind == "replay":
            if event.verdict:
                self._counts(event.origin).verdicts[event.verdict] += 1
        elif event.kind in ("isolation", "recovery", "stress"):
            self._counts(event.origin)
        if event.kind in ("isolation", "recovery") and event.recovered_by != "vendor":
            key = event.host, event.device
            self._isolated.pop(key, None)
            if event.kind == "isolation":
                self._isolated[key] = None
                if len(self._isolated) > _MOST_DEVICES:
                    del self._isolated[next(iter(self._isolated))]

    def _count_strikes(self, event: Event, past: float | None) -> None:
        if not math.isfinite(event.time):
            return
        now = self._clock() if past is None else past
        try:
            with self._store.transaction():
                if past is None:  # a recount is rank by rank: other ranks of the step come later
                    self._strikes.settle(now)
                self._strikes.count(self._strikes.read(event, now))
        except (OverflowError, ValueError):  # its numbers are out of every range
            return
        self._unpruned += 1
        if self._unpruned >= _PRUNE_EVENTS:
            self._prune(now)

    def _prune(self, now: float) -> None:
        """Forgets what nothing asks for any more, and the oldest of too much."""
        self._unpruned = 0
        with self._store.transaction() as db:
            self._store.prune(now - self.policy.memory_seconds, now - self.policy.strike_memory_seconds)
            for table, first in (("strike", "revoked = '' DESC, "), ("software", ""), ("sighting", "")):
                kept = f"SELECT n FROM {table} ORDER BY {first}n DESC LIMIT {_MOST_FACTS}"
                db.execute(f"DELETE FROM {table} WHERE n NOT IN ({kept})")
            kept = f"SELECT n FROM device ORDER BY last DESC LIMIT {_MOST_DEVICES}"
            db.execute(f"DELETE FROM device WHERE n NOT IN ({kept})")
            db.execute("DELETE FROM strike WHERE device NOT IN (SELECT n FROM device)")

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

"""The ledger: what the events add up to.

Events are facts and arrive in any order, some of them twice; the ledger counts each once, per rank and per device. It
takes the same memory after a million events as after some thousands.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, NamedTuple

from asd.errors import StateError
from asd.event import LEVEL_NAMES, VERDICTS, Event
from asd.handler.decide.strike_counts import StrikeCounts
from asd.handler.policy import Policy
from asd.origin import Origin
from asd.rules.step.strikes import device_key
from asd.verdict import Level

__all__ = ["DeviceCounts", "DeviceStatus", "Ledger"]

VERSION = 2
_MOST_EVENTS = 1000
_MOST_CHARACTERS = 16 * 1024 * 1024  # of the texts in these events
_MOST_IDS = 20_000
_ID = 16  # characters of an id that are kept: that any two of 20,000 agree has a chance of 1 in 10**11
_MOST_RUNS = 64
_MOST_RANKS = 1024
_MOST_DEVICES = 1024


@dataclass(slots=True)
class DeviceCounts:
    """What was counted of one rank of one run.

    Attributes:
        anomalies: Anomalies by level, `first` and `second`.
        strikes: Its strikes as they came. A verdict that comes later makes them no fewer, so that the count only grows.
        verdicts: Replays by verdict.
        last_anomaly: When the last anomaly was, in seconds since the epoch; 0 before the first.
        last_events: Per level the id and the time of its last anomaly.
    """

    anomalies: dict[str, int] = field(default_factory=lambda: {"first": 0, "second": 0})
    strikes: int = 0
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    last_anomaly: float = 0.0
    last_events: dict[str, tuple[str, float]] = field(default_factory=dict)


class DeviceStatus(NamedTuple):
    """How a device stands, whatever run it works for.

    Attributes:
        strikes_in_window: Its strikes, as the fault handler counts them with the same policy.
        suspect: Whether these are as many as take a device out.
        isolated: Whether it was taken out and not given back.
    """

    strikes_in_window: int = 0
    suspect: bool = False
    isolated: bool = False


class Ledger:
    """Counts events; every method may be called from any thread.

    It keeps the last 1000 events, the last 20,000 ids, the last 64 runs with at most 1024 ranks together, and the last
    1024 devices.

    Args:
        policy: What a strike is, how long it counts, and how many make a device suspect.
        clock: Seconds since the epoch.

    Attributes:
        policy: As above.
        recent: The last events, the oldest first; `events()` is a copy for other threads.
    """

    def __init__(self, policy: Policy | None = None, clock: Callable[[], float] = time.time) -> None:
        self.policy = policy or Policy()
        self._clock = clock
        self.recent: deque[Event] = deque()
        self._characters = 0
        self._lock = threading.Lock()
        self._ids: deque[str] = deque()
        self._known: set[str] = set()
        self._runs: dict[str, dict[Origin, DeviceCounts]] = {}  # the last used stands last
        self._strikes = StrikeCounts(self.policy)
        self._isolated: dict[tuple[str, str, int], None] = {}

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
            self._keep(event)
            self._count(event, identity)
        return True

    def recall(self, event: Event) -> bool:
        """Puts an event that was counted before `restore` back among the last ones; returns whether it was counted."""
        short = event.id[:_ID]
        with self._lock:
            known = short in self._known
            if known:
                self._keep(event)
        return known

    def events(self) -> list[Event]:
        """The last events, the oldest first; a copy."""
        with self._lock:
            return list(self.recent)

    def tallies(self) -> dict[Origin, DeviceCounts]:
        """What was counted of each rank; a copy."""
        with self._lock:
            return self._copies()

    def standing(self, host: str, device: str, rank: int, now: float) -> DeviceStatus:
        """How a device stands at `now`, in seconds since the epoch; `rank` tells apart those that share a `device`."""
        return self.standings(now).get(device_key(host, device, rank), DeviceStatus())

    def standings(self, now: float) -> dict[tuple[str, str, int], DeviceStatus]:
        """The same of every device that has strikes or is isolated, by `asd.rules.step.strikes.device_key`."""
        with self._lock:
            isolated = self._isolated.copy()
            found = self._strikes.standings(now)
        strikes = {key: found[key].strikes if key in found else 0 for key in (*found, *isolated)}
        return {
            key: DeviceStatus(count, count >= self.policy.strikes, key in isolated) for key, count in strikes.items()
        }

    def state(self) -> dict[str, Any]:
        """The counts and the ids, JSON-able and bounded; not the last events themselves."""
        with self._lock:
            return {
                "version": VERSION,
                "ids": "".join(self._ids),
                "tallies": [
                    [
                        *astuple(key),
                        tally.anomalies,
                        tally.strikes,
                        tally.verdicts,
                        tally.last_anomaly,
                        tally.last_events,
                    ]
                    for key, tally in self._copies().items()
                ],
                "isolated": [list(key) for key in self._isolated],
                "strikes": self._strikes.state(),
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            StateError: It is no such state. Nothing was changed then.
        """
        if state.get("version") != VERSION:
            raise StateError(f"the saved ledger has version {state.get('version')!r}; valid is {VERSION}.")
        try:
            text = state["ids"].encode("ascii").decode()
            ids = [text[place : place + _ID] for place in range(0, len(text), _ID)][-_MOST_IDS:]
            runs: dict[str, dict[Origin, DeviceCounts]] = {}
            for run, rank, host, device, *counts in state["tallies"]:
                runs.setdefault(str(run), {})[Origin(str(run), int(rank), str(host), str(device))] = _tally(*counts)
            isolated = {(str(host), str(device), int(rank)): None for host, device, rank in state["isolated"]}
            strikes = StrikeCounts(self.policy)
            strikes.restore(state["strikes"])
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise StateError(f"the saved ledger can't be used: {error!r}.") from error
        with self._lock:
            self._ids, self._known = deque(ids), set(ids)
            self._runs, self._isolated, self._strikes = runs, isolated, strikes
            self.recent.clear()
            self._characters = 0

    def _copies(self) -> dict[Origin, DeviceCounts]:
        return {key: _copy(tally) for tallies in self._runs.values() for key, tally in tallies.items()}

    def _keep(self, event: Event) -> None:
        self.recent.append(event)
        self._characters += _size(event)
        while len(self.recent) > _MOST_EVENTS or self._characters > _MOST_CHARACTERS:
            self._characters -= _size(self.recent.popleft())

    def _count(self, event: Event, identity: str) -> None:
        new = self._strikes.add(event, self._clock())
        if event.kind == "anomaly" and event.level is not Level.NORMAL:
            level = LEVEL_NAMES[event.level]
            tally = self._tally(event)
            tally.anomalies[level] += 1
            tally.last_anomaly = event.time
            tally.last_events[level] = identity, event.time
        elif event.kind == "replay":
            if event.verdict:
                self._tally(event).verdicts[event.verdict] += 1
        elif event.kind in ("isolation", "recovery"):
            self._tally(event)
            key = device_key(event.host, event.device, event.rank)
            self._isolated.pop(key, None)
            if event.kind == "isolation":
                self._isolated[key] = None
                if len(self._isolated) > _MOST_DEVICES:
                    del self._isolated[next(iter(self._isolated))]
        if new:
            self._tally(event).strikes += 1

    def _tally(self, event: Event) -> DeviceCounts:
        key = event.origin
        tallies = self._runs.pop(event.run, None)
        if tallies is None:
            tallies = {}
        self._runs[event.run] = tallies
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = DeviceCounts()
            self._shrink()
        return tally

    def _shrink(self) -> None:
        """Forgets the runs that were not heard of for longest, and of a single huge one its first ranks."""
        while len(self._runs) > 1 and (len(self._runs) > _MOST_RUNS or self._ranks() > _MOST_RANKS):
            del self._runs[next(iter(self._runs))]
        for tallies in self._runs.values():
            while len(tallies) > _MOST_RANKS:
                del tallies[next(iter(tallies))]

    def _ranks(self) -> int:
        return sum(map(len, self._runs.values()))


def _size(event: Event) -> int:
    texts = (event.run, event.host, event.device, event.checkpoint, event.rule, event.feature, event.reason)
    return sum(map(len, texts)) + len(event.evidence) + len(event.key) + 8 * len(event.limits)


def _copy(tally: DeviceCounts) -> DeviceCounts:
    return replace(
        tally,
        anomalies=dict(tally.anomalies),
        verdicts=dict(tally.verdicts),
        last_events=dict(tally.last_events),
    )


def _tally(
    anomalies: Mapping[str, int], strikes: int, verdicts: Mapping[str, int], last_anomaly: float,
    last_events: Mapping[str, tuple[str, float]],
) -> DeviceCounts:  # fmt: skip
    return DeviceCounts(
        anomalies={level: int(anomalies[level]) for level in ("first", "second")},
        strikes=int(strikes),
        verdicts={verdict: int(verdicts[verdict]) for verdict in VERDICTS},
        last_anomaly=float(last_anomaly),
        last_events={str(level): (str(event), float(time)) for level, (event, time) in last_events.items()},
    )

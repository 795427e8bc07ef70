"""Files of a run, read for its report: events, counts and evidence; unreadable files are listed, not fatal."""

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from asd.errors import StateError
from asd.event import Event
from asd.exporters.ledger import Ledger
from asd.exporters.report.bundles import SavedBundle, find_bundles
from asd.exporters.run_files.event_log import read_events
from asd.exporters.run_files.liveness import Liveness
from asd.exporters.run_files.status_file import StatusFiles
from asd.handler import Policy
from asd.judge.status import Status
from asd.origin import FromOrigin, Origin
from asd.rundir.names import event_files
from asd.verdict import Level

SORTS = {
    "first": ("first-level anomaly", "first-level anomalies"),
    "second": ("second-level anomaly", "second-level anomalies"),
    "follower": ("update refused by another rank", "updates refused by another rank"),
    "problem": ("detector problem", "detector problems"),
    "replay": ("replay", "replays"),
    "isolation": ("isolation", "isolations"),
    "recovery": ("recovery", "recoveries"),
    "stress": ("stress test", "stress tests"),
}
"""The sorts of events a report tells apart, the gravest anomaly first: one, and many."""

_HARDWARE = ("transient", "persistent")
_SILENT_SECONDS = 120.0
"""A status is rewritten about once a second; a rank of another machine not heard of for so long is called silent."""


@dataclass(slots=True)
class Rank(FromOrigin):
    """One rank of one run on one device, as its events and its counts tell."""

    origin: Origin  # run, rank, host and device; they can be read from the rank too
    status: Status | None = None  # its counts; None when it left none
    state: str = ""  # `running`, `ended`, `lost` (its process is gone), `silent`, `not begun`; empty without counts
    events: Counter[str] = field(default_factory=Counter)  # number of its events by sort, see `SORTS`
    strikes: int = 0  # those of its device, in all runs of the folder, as the fault handler counts them
    refused_steps: set[int] = field(default_factory=set)  # steps whose update was refused
    last_step: int = 0  # the last step that an event or the counts name
    isolated: bool = False  # whether it was taken out and not given back since

    def add(self, event: Event) -> None:
        """Counts one event; events come in the order of time."""
        sort = sort_of(event)
        self.events[sort] += 1
        self.last_step = max(self.last_step, event.step)
        if event.refused:
            self.refused_steps.add(event.step)
        if sort in ("isolation", "recovery") and event.recovered_by != "vendor":
            self.isolated = sort == "isolation"

    def count(self, sort: str) -> int:
        """Returns how many events of `sort` there were: in the logs, or in the status if a log has lost some."""
        counted = 0
        if self.status is not None:
            counted = self.status.problems if sort == "problem" else self.status.anomalies.get(sort, 0)
        return max(self.events[sort], counted)

    @property
    def checks(self) -> int:
        """Values judged."""
        return self.status.checks if self.status is not None else 0

    @property
    def refused(self) -> int:
        """Updates refused."""
        return max(len(self.refused_steps), self.status.refused if self.status is not None else 0)

    @property
    def device_name(self) -> str:
        """Host and device for people."""
        return f"{self.host} device {self.device}"

    @property
    def troubled(self) -> bool:
        """True where anything but normal values is known of it."""
        return bool(self.events or self.state in ("lost", "silent") or self.count("first") or self.count("problem"))


@dataclass(slots=True)
class RunData:
    """Content of a run folder."""

    run_dir: Path  # the folder
    events: list[Event]  # every event once, in the order of time
    ranks: list[Rank]  # the ranks, by time of the run, then by rank
    bundles: list[SavedBundle]  # the evidence, by run, rank and step
    unreadable: dict[str, str]  # reason why a file could not be read completely, by file
    policy: Policy = field(default_factory=Policy)  # policy that counts the strikes

    @property
    def runs(self) -> list[str]:
        """Names of the runs, the oldest first."""
        return list(dict.fromkeys(rank.run for rank in self.ranks))

    def count(self, sort: str) -> int:
        """Returns how many events of `sort` there were in all ranks."""
        return sum(rank.count(sort) for rank in self.ranks)

    @property
    def refused(self) -> int:
        """Updates refused; one that all ranks refused together is one."""
        steps: dict[str, set[int]] = {}
        most: dict[str, int] = {}
        for rank in self.ranks:
            steps.setdefault(rank.run, set()).update(rank.refused_steps)
            most[rank.run] = max(rank.refused, most.get(rank.run, 0))
        return sum(max(len(steps[run]), most[run]) for run in steps)

    @property
    def accused(self) -> set[Origin]:
        """The ranks whose hardware a replay found to be at fault."""
        return {event.origin for event in self.events if event.kind == "replay" and event.verdict in _HARDWARE}


def sort_of(event: Event) -> str:
    """Returns which of `SORTS` an event is."""
    return event.kind if event.kind != "anomaly" else "first" if event.level is Level.ERROR else "second"


def read_run(run_dir: Path, *, now: float | None = None, policy: Policy | None = None) -> RunData:
    """Reads a run folder.

    Args:
        run_dir: The folder of a run.
        now: Seconds since the epoch; the present when None.
        policy: What a strike is, and how long it counts; as the fault handler has it.
    """
    if not run_dir.is_dir():
        raise StateError(f"the run folder {str(run_dir)!r} does not exist; pass the ASD_RUN_DIR of a run.")
    now = time.time() if now is None else now
    ledger = Ledger(policy, lambda: now)
    unreadable: dict[str, str] = {}
    events: dict[str, Event] = {}
    for path in event_files(run_dir):
        for event in _read_events(path, unreadable):
            events.setdefault(event.id, event)
    # Within one time the order of the log is kept: it is that of the backward pass.
    ordered = sorted(events.values(), key=lambda event: event.time)
    ranks: dict[Origin, Rank] = {}
    starts: dict[str, float] = {}
    lives = Liveness()
    files = StatusFiles([run_dir])
    for status in files.poll():
        rank = ranks.setdefault(status.origin, Rank(status.origin))
        rank.status, rank.last_step = status, max(0, status.step)
        rank.state = _state(status, now, lives)
        starts[status.run] = min(status.started, starts.get(status.run, math.inf))
    unreadable.update((Path(name).name, reason[:300]) for name, reason in files.unreadable.items())
    for event in ordered:
        ranks.setdefault(event.origin, Rank(event.origin)).add(event)
        starts[event.run] = min(event.time, starts.get(event.run, math.inf))
        ledger.add(event)
    records = ledger.records(now)
    for rank in ranks.values():
        record = records.get((rank.host, rank.device))
        rank.strikes = record.strikes if record else 0
    by_start = sorted(ranks.values(), key=lambda rank: (starts[rank.run], rank.run, rank.rank, rank.host, rank.device))
    return RunData(run_dir, ordered, by_start, find_bundles(run_dir, unreadable), unreadable, ledger.policy)


def _read_events(path: Path, unreadable: dict[str, str]) -> list[Event]:
    bad: list[str] = []
    try:
        events = read_events(path, bad)
    except OSError as error:
        unreadable[path.name] = error.strerror or str(error)
        return []
    if bad:
        lines = "line is" if len(bad) == 1 else "lines are"
        unreadable[path.name] = f"{len(bad)} {lines} not an event, skipped; {bad[0]}"
    return events


def _state(status: Status, now: float, lives: Liveness) -> str:
    if not status.active:
        return "ended" if status.steps else "not begun"
    if not lives(status):
        return "lost"
    # Of a process on another machine nothing but its last word is known.
    return "running" if lives.sees(status) or now - status.written <= _SILENT_SECONDS else "silent"

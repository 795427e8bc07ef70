"""The node agent: follows the files of many ranks and keeps what they add up to.

It takes no part in any training, so a rank may die and so may the agent. Its events and how far it has read are kept
together in one file: an agent that was killed loses no event and counts none twice.
"""

import contextlib
import json
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from asd.errors import ConfigError, StateError
from asd.event import Event
from asd.exporters.ledger import Ledger
from asd.exporters.prometheus.device_map import DeviceMap, DeviceNames, name_device
from asd.exporters.prometheus.event_journal import EventJournal, JournalInUseError
from asd.exporters.prometheus.rows import nearest
from asd.exporters.run_files.liveness import Liveness
from asd.exporters.run_files.status_file import StatusFiles
from asd.handler import Policy
from asd.handler.inputs.owners import may_give_back
from asd.judge.status import Status
from asd.rundir.folders import RunFolders
from asd.rundir.follow import Follower, Line

PROBLEMS = ("event_log", "status_file", "cursor", "bad_line", "long_line", "lost_lines", "disk_full", "read_only")
"""Failures of the agent itself, values of the label `reason`."""

_AT_ONCE = 500  # lines between two saves; about 0.5 s of work where all are anomalies
_MOST_UNREAD = 100  # events of all run folders together that a handler has not pulled yet, where one pulls
_LEAST_UNREAD = 20  # of one folder
_MANY_CHARACTERS = 1 << 20  # of a batch that may not be the last one
_STUCK_INTERVALS = 10
_MOST_WARNINGS = 100
_MOST_UNKEPT = 1000  # events that wait for the journal; meanwhile no more are read
_MOST_COUNTED = 20_000  # of the events that are kept, when it starts: about 2 s
_FEW = 3
_MOST_DEVICES, _MOST_FLEET = 32, 12_000  # devices and characters in the header of an answer, which holds 16 KB
_SHOWN_SECONDS = 86_400.0  # since the last status of a rank: ended runs would slow down each scrape for ever
_FRESH_SECONDS = 600.0  # age of the status of a training that goes on: a step may take minutes

_log = logging.getLogger("asd.exporter")


class Agent:
    """Follows the event logs and statuses of run directories.

    Call `poll` now and then, or `run` in a thread; everything else may be called from any thread.

    Args:
        run_dirs: The folders, or their parents; the agent waits for folders that do not exist yet.
        state_file: File of its events and positions; None for a file in the first of `run_dirs`.
        host: Reads only data of this machine; of all when empty.
        poll_interval: Seconds between two polls in `run`.
        policy: What a strike is, and how many make a device suspect; as the fault handler has it.
        devices: Returns the other names of a device, which are added to its events.
        checkpoints: Number of checkpoints per rank with series, those nearest to their limits.
        clock: Seconds since the epoch.
        monotonic: Seconds from any point in time; never goes back.
    """

    def __init__(
        self,
        run_dirs: Sequence[Path],
        state_file: Path | None = None,
        *,
        host: str = "",
        poll_interval: float = 1.0,
        policy: Policy | None = None,
        devices: DeviceMap = name_device,
        checkpoints: int = 0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not run_dirs:
            raise ConfigError("run_dirs", run_dirs, "it must name one folder or more")
        self._folders = RunFolders(run_dirs)
        self.run_dirs = self._folders.roots
        self.state_file = state_file or self.run_dirs[0] / "exporter.sqlite"
        self.host = host
        self.checkpoints = checkpoints
        self.poll_interval = poll_interval
        self.ledger = Ledger(policy, clock)  # totals of the events
        self.problems = dict.fromkeys(PROBLEMS, 0)  # numbers of problems, by reason, one of `PROBLEMS`
        self.alive = Liveness()  # returns whether the process of a status lives
        self.left_out = 0  # number of ranks of other machines that were skipped at the last poll
        self.behind: dict[Path, int] = {}  # bytes of event logs that are still to be read, by run folder
        self._devices = devices
        self._clock = clock
        self._monotonic = monotonic
        self._cann: dict[tuple[str, str], str] = {}  # of the devices in training
        self._status_files = StatusFiles(self.run_dirs, self._folders.status_files, self._reduced)
        self._statuses: list[Status] = []
        self._disk = ""
        self.last_poll = 0.0  # when it last looked at the files, in seconds since the epoch; 0 before the first time
        self._last_sign = monotonic()
        self._polled = False
        self._warned: set[str] = set()
        # the events, for a fault handler that pulls; in the state file
        self.journal = EventJournal(self.state_file, monotonic=monotonic)
        self._closed = ""  # why the journal is
        self._unkept: list[Event] = []
        self._taken: Counter[Path] = Counter()  # how many of these are new, by run folder
        self._unread: dict[Path, deque[tuple[int, int]]] = {}  # numbers in the journal, and how many events
        self._follower = self._follow(None)
        self._saved: dict[str, Any] | None = None
        self._begin(patient=False)

    def statuses(self) -> list[Status]:
        """Returns the statuses of the ranks at the last poll."""
        return self._statuses

    @property
    def run_folders(self) -> int:
        """In how many folders ranks have left something, at the last poll."""
        return self._folders.found

    def ready(self) -> str:
        """Returns why its data are not up to date; empty when they are."""
        age = self._monotonic() - self._last_sign
        if age > _STUCK_INTERVALS * self.poll_interval:
            return f"the files were last read {age:.0f} s ago"
        if not self._polled:
            return "the event logs are being read for the first time"
        return self.journal.problem or self._disk or self._folders.complaint

    def run(self, stop: threading.Event) -> None:
        """Polls until `stop` is set, whatever happens."""
        while not stop.is_set():
            try:
                self.poll(stop)
            except Exception as error:  # metrics that stand still look healthy: say so, and begin where all was well
                self._problem("event_log", f"the files can't be followed: {type(error).__name__}: {error}")
                self.journal.close()
            stop.wait(self.poll_interval)

    def poll(self, stop: threading.Event | None = None) -> None:
        """Reads everything that is new.

        Args:
            stop: Ends the poll early when it is set; the next one goes on from there.
        """
        while True:
            self._begin()
            self._look_at_statuses()
            most = _AT_ONCE if self.journal.read < 0 else _MOST_UNREAD
            lines = self._follower.poll(most, self._held()) if len(self._unkept) < _MOST_UNKEPT else []
            for line in lines:
                self._take(line)
            self.behind = dict.fromkeys(self._status_files.folders, 0) | self._follower.behind()
            self._look_at_follower()
            self._look_at_disks()
            self._keep()
            self.last_poll, self._last_sign = self._clock(), self._monotonic()
            if not self._follower.unserved:  # of who is behind now, others have the delay no more
                self._polled = True
                if len(lines) < most and sum(len(line.text) for line in lines) < _MANY_CHARACTERS:
                    return
            if len(self._unkept) >= _MOST_UNKEPT or (stop is not None and stop.is_set()):
                return

    def _held(self) -> list[Path]:
        """Returns the run folders with more than their share of the events that were not pulled yet."""
        read = self.journal.read
        for folder, told in list(self._unread.items()):
            while told and (told[0][0] <= read or read < 0):
                told.popleft()
            if not told:
                del self._unread[folder]
        share = max(_MOST_UNREAD // max(len(self._unread), 1), _LEAST_UNREAD)
        return [folder for folder, told in self._unread.items() if sum(count for _, count in told) >= share]

    def close(self) -> None:
        """Lets another agent use the state file."""
        self.journal.close()

    def _look_at_statuses(self) -> None:
        self._status_files.folders = self._folders.look()
        found = [each for each in self._status_files.poll() if self._clock() - each.written < _SHOWN_SECONDS]
        self._statuses = [status for status in found if self.host in ("", status.host)]
        self._look_at_devices()
        self._look_at_others({status.host for status in found}, len(found) - len(self._statuses))
        for path, reason in self._status_files.unreadable.items():
            self._problem("status_file", f"{path}: {reason}")

    def _look_at_devices(self) -> None:
        """Lists the devices on which a training goes on, each with its hardware, for a fault handler."""
        training = (each for each in self._statuses if each.active and self._clock() - each.written < _FRESH_SECONDS)
        self._cann = {(each.host, each.device): each.cann for each in training}
        named = [(*place, self._names(*place)) for place in list(self._cann)[:_MOST_DEVICES]]
        rows = [(host, device, names.vdie_id, asdict(names.hardware)) for host, device, names in named]
        while len(text := json.dumps(rows, separators=(",", ":"))) > _MOST_FLEET:  # a job may write any name
            rows.remove(max(rows, key=lambda row: len(json.dumps(row))))
        self.journal.fleet = text

    def _names(self, host: str, device: str) -> DeviceNames:
        names, cann = self._devices(host, device), self._cann.get((host, device), "")
        return names._replace(hardware=replace(names.hardware, cann=cann)) if cann else names

    def _reduced(self, status: Status) -> Status:
        """Reduces a status to its metrics: a node may have thousands of ranks, each with hundreds of checkpoints."""
        status.checkpoints, status.protections = nearest(status.checkpoints, self.checkpoints), {}
        return status

    def _look_at_others(self, hosts: set[str], left_out: int) -> None:
        """Warns where no rank is read: an endpoint without series looks like a cluster without faults."""
        self.left_out = left_out
        if self._polled and not self._folders.found:
            self._warn_once(f"{self._folders.complaint}.")
        if left_out and self.host not in hosts:
            some = ", ".join(sorted(hosts)[:_FEW])
            self._warn_once(
                f"all ranks in the run folders are of other machines ({some}{', ...' if len(hosts) > _FEW else ''}) "
                f"and skipped, because this agent reads only {self.host}; in a pod, set ASD_NODE of the training to "
                "the name of its node.",
                "others",
            )

    def _look_at_follower(self) -> None:
        follower = self._follower
        for path, reason in {**self._folders.unreadable, **follower.unreadable}.items():
            self._problem("event_log", f"{path} can't be read: {reason}.")
        if follower.skipped:
            self._problem("long_line", "an event log has a line of more than 1 MB.", follower.skipped)
        if follower.lost:
            self._problem("lost_lines", "an event log vanished before it was read to its end.", follower.lost)
        follower.skipped = follower.lost = 0

    def _look_at_disks(self) -> None:
        """Checks that ranks can write: one that begins where it cannot leaves neither status nor event."""
        self._disk = ""
        for folder in self.run_dirs:
            with contextlib.suppress(OSError):
                disk = os.statvfs(folder)
                if disk.f_blocks and not disk.f_bavail:
                    self._disk = f"{folder} is on a full disk; ranks can't write there."
                    self._problem("disk_full", self._disk)
                # With the state elsewhere the agent may well see a read-only view of what ranks can write.
                if disk.f_flag & os.ST_RDONLY and self.state_file.parent == folder:
                    self._problem(
                        "read_only", f"{folder} is on a file system that is read-only; nothing is written there."
                    )

    def _take(self, line: Line) -> None:
        try:
            event = Event.from_json(line.text)
        except Exception as error:  # whatever else writes into these files
            self._problem("bad_line", f"{line.path}, byte {line.offset}: {error}")
        else:
            if event.kind == "recovery" and event.recovered_by != "vendor" and not may_give_back(line.path):
                self._problem("bad_line", f"{line.path}, byte {line.offset}: its user may not report a release.")
            elif self.host in ("", event.host):
                event = self._of_hardware(event)
                self._taken[line.path.parent] += self.ledger.add(event)
                self._unkept.append(event)

    def _of_hardware(self, event: Event) -> Event:
        """Returns the event with its device's serial, physical number and hardware, which only the agent knows."""
        names = self._names(event.host, event.device)
        is_known = names[:2] != name_device(event.host, event.device)[:2]
        number = int(names.id) if is_known and names.id.isdecimal() else -1
        if (event.serial, event.device_number, event.hardware) == (names.vdie_id, number, names.hardware):
            return event
        return replace(event, serial=names.vdie_id, device_number=number, hardware=names.hardware)

    def _begin(self, *, patient: bool = True) -> None:
        """Opens the journal where it is not open, and begins where it ends."""
        if self.journal.is_open or not self._has_folder():
            return
        try:
            self.state_file.parent.mkdir(parents=True, exist_ok=True)
            saved = self.journal.open()
        except (StateError, OSError) as error:
            if isinstance(error, JournalInUseError) and not patient:
                raise
            self._closed = str(error)
        else:
            self._unkept, self._closed = [], ""
            self._taken.clear()
            self._go_on(saved or {})

    def _go_on(self, saved: dict[str, Any]) -> None:
        """Begins where the journal ends; with the first lines where that can't be told."""
        if self.journal.lost:
            self._problem(
                "cursor", f"{self.state_file} was corrupt and is {self.journal.lost} now; logs are read from the start."
            )
            self.journal.lost = ""
        try:
            self._follower = self._follow(saved.get("cursor"))
        except StateError as error:
            self._problem(
                "cursor", f"{self.state_file} cannot be used, so the event logs are read from the start: {error}"
            )
            self._follower = self._follow(None)
        self.ledger.recount(self.journal.last_events(_MOST_COUNTED))
        self._saved = self._follower.state() if saved else None

    def _follow(self, cursor: dict[str, Any] | None) -> Follower:
        return Follower(self._folders.event_files, cursor, links=False)

    def _has_folder(self) -> bool:
        """Returns whether the folder of the state file exists or may be created; runs create their own folders."""
        return self.state_file.parent not in self.run_dirs or self.state_file.parent.is_dir()

    def _keep(self) -> None:
        """Puts the new events into the journal, with how far was read; what can't be kept now is tried again."""
        problem = self._closed
        if not self._has_folder():
            self.journal.problem = f"{self.state_file.parent} is not there." if self._unkept else ""
            return
        try:
            cursor = self._follower.state()
            if self.journal.is_open and (self._unkept or cursor != self._saved):
                self.journal.add(self._unkept, {"cursor": cursor})
                self._unkept, self._saved = [], cursor
                for folder, count in (+self._taken).items():
                    self._unread.setdefault(folder, deque()).append((self.journal.last, count))
                self._taken.clear()
        except StateError as error:
            problem = str(error)
        if problem and self._unkept:
            self._problem("cursor", problem)
        elif problem:
            self._warn_once(problem)  # nothing is lost so far
        self.journal.problem = problem

    def _problem(self, reason: str, sentence: str, count: int = 1) -> None:
        self.problems[reason] += count
        self._warn_once(sentence)

    def _warn_once(self, sentence: str, topic: str = "") -> None:
        """Logs a sentence, once; one only of those that have a topic."""
        topic = topic or sentence
        if topic not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(topic)
            _log.warning("%s", sentence)

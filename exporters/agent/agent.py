"""The node agent: follows the files of many ranks and keeps what they add up to.

It takes no part in any training, so a rank may die and so may the agent. How far it has read and what it has counted
are saved together in one file: an agent that was killed begins again where both still agree, so no event is lost and
none is counted twice.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from asd import run_dir
from asd.errors import ConfigError, StateError
from asd.event import Event
from asd.exporters.agent.liveness import Liveness
from asd.exporters.agent.state_lock import StateLock
from asd.exporters.metrics.collector import PROBLEMS
from asd.exporters.status_file import StatusFiles
from asd.follow import Follower, Line
from asd.ledger import Ledger
from asd.statefile import write_whole
from asd.status import Status

__all__ = ["Agent"]

VERSION = 1
_AT_ONCE = 5000  # lines between two saves; about 0.2 s of work
_STUCK_INTERVALS = 10
_TAIL_BYTES = 1 << 18  # of each event log, to find its last events again
_MOST_BYTES = 1 << 28
_MOST_TOLD = 100

_log = logging.getLogger("asd.exporter")


class Agent:
    """Follows the event logs and statuses of run directories.

    Call `poll` now and then, or `run` in a thread; everything else may be called from any thread.

    Args:
        run_dirs: The folders; those that do not exist yet are waited for.
        state_file: Where it keeps how far it has read; None for a file in the first of `run_dirs`.
        host: Takes in only what came from this machine; everything when empty.
        poll_interval: Seconds between two polls in `run`.
        clock: Seconds since the epoch.
        monotonic: Seconds from any point in time; never goes back.

    Attributes:
        ledger: What the events add up to.
        problems: What went wrong, by reason; see `asd.exporters.metrics.collector.PROBLEMS`.
        alive: Tells whether the process of a status lives.

    Raises:
        ConfigError: There is no folder to follow.
        StateError: Another agent uses the same state file.
    """

    def __init__(
        self,
        run_dirs: Sequence[Path],
        state_file: Path | None = None,
        *,
        host: str = "",
        poll_interval: float = 1.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not run_dirs:
            raise ConfigError("run_dirs", run_dirs, "it must name one folder or more")
        self.run_dirs = list(dict.fromkeys(run_dirs))
        self.state_file = state_file or run_dir.cursor_file(self.run_dirs[0], "exporter")
        self.host = host
        self.poll_interval = poll_interval
        self.ledger = Ledger()
        self.problems = dict.fromkeys(PROBLEMS, 0)
        self.alive = Liveness()
        self._clock = clock
        self._monotonic = monotonic
        self._status_files = StatusFiles(self.run_dirs)
        self._statuses: list[Status] = []
        self._listed: dict[Path, list[Path]] = {}
        self._closed: dict[str, str] = {}
        self._last_poll = 0.0
        self._last_sign = monotonic()
        self._polled = False
        self._told: set[str] = set()
        self._lock = StateLock(self.state_file, self.run_dirs)
        self._lock.take()
        self._follower = self._begin()

    def statuses(self) -> list[Status]:
        """What the ranks counted, at the last poll."""
        return self._statuses

    def last_poll(self) -> float:
        """When it last looked at the files, in seconds since the epoch; 0 before the first time."""
        return self._last_poll

    def ready(self) -> str:
        """Why what it serves is not up to date; empty when it is."""
        age = self._monotonic() - self._last_sign
        if age > _STUCK_INTERVALS * self.poll_interval:
            return f"the files were last looked at {age:.0f} s ago"
        return "" if self._polled else "the event logs are being read for the first time"

    def run(self, stop: threading.Event, after_poll: Callable[[], None] = lambda: None) -> None:
        """Polls until `stop` is set, whatever happens; calls `after_poll` each time."""
        while not stop.is_set():
            try:
                self.poll(stop)
            except Exception as error:  # metrics that stand still look healthy: say so, and begin where all was well
                self._problem("event_log", f"the files can't be followed: {type(error).__name__}: {error}")
                self._follower = self._begin()
            after_poll()
            stop.wait(self.poll_interval)

    def poll(self, stop: threading.Event | None = None) -> None:
        """Reads everything that is new.

        Args:
            stop: Ends the poll early when it is set; the next one goes on from there.
        """
        while True:
            self._look_at_statuses()
            lines = self._follower.poll(_AT_ONCE)
            for line in lines:
                self._take(line)
            self._look_at_follower()
            self._look_at_disks()
            self._save()
            self._last_poll, self._last_sign = self._clock(), self._monotonic()
            if len(lines) < _AT_ONCE:
                self._polled = True
                return
            if stop is not None and stop.is_set():
                return

    def outlet_failed(self, sentence: str) -> None:
        """Counts that the metrics could not be handed on to another program, and logs it once."""
        self._problem("outlet", sentence)

    def close(self) -> None:
        """Lets another agent use the state file."""
        self._lock.release()

    def _look_at_statuses(self) -> None:
        found = self._status_files.poll()
        self._statuses = [status for status in found if self.host in ("", status.host)]
        for path, reason in self._status_files.unreadable.items():
            self._problem("status_file", f"{path}: {reason}")

    def _look_at_follower(self) -> None:
        follower = self._follower
        for path, reason in {**self._closed, **follower.unreadable}.items():
            self._problem("event_log", f"{path} can't be read: {reason}.")
        if follower.skipped:
            self._problem("long_line", "an event log has a line of more than 1 MB.", follower.skipped)
        if follower.lost:
            self._problem("lost_lines", "an event log vanished before it was read to its end.", follower.lost)
        follower.skipped = follower.lost = 0

    def _look_at_disks(self) -> None:
        """A rank that begins where nothing can be written leaves neither status nor event: nothing else tells of it."""
        for folder in self.run_dirs:
            with contextlib.suppress(OSError):
                disk = os.statvfs(folder)
                if disk.f_blocks and not disk.f_bavail:
                    self._problem("disk_full", f"{folder} is on a full disk; ranks can't write there.")
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
            if self.host in ("", event.host):
                self.ledger.add(event)

    def _files(self) -> list[Path]:
        self._closed = {}
        for folder in self.run_dirs:
            try:
                self._listed[folder] = run_dir.event_files(folder)
            except OSError as error:  # the files it had are not gone, they are hidden
                self._closed[str(folder)] = error.strerror or str(error)
        return [path for folder in self.run_dirs for path in self._listed.get(folder, ())]

    def _begin(self) -> Follower:
        """Begins where cursor and counts were last saved together; with the first lines when they were not."""
        saved: Any = None
        try:
            saved = _load(self.state_file)
            follower = Follower(self._files, saved and saved["cursor"])
            self.ledger.restore(saved["ledger"] if saved else Ledger().state())
        except (OSError, StateError) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            self._problem("cursor", f"{self.state_file} can't be used, and the event logs are read anew: {reason}")
            follower = Follower(self._files)
            self.ledger.restore(Ledger().state())
        self._saved = follower.state()
        if saved:
            for event in _last_events(self._files()):
                self.ledger.recall(event)
        return follower

    def _save(self) -> None:
        cursor = self._follower.state()
        if cursor == self._saved or not self._lock.has_folder():
            return
        state = {"version": VERSION, "cursor": cursor, "ledger": self.ledger.state()}
        try:
            self._lock.take()
            write_whole(self.state_file, json.dumps(state))
        except (OSError, StateError) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            self._problem("cursor", f"{self.state_file} can't be written: {reason}")
        else:
            self._saved = cursor

    def _problem(self, reason: str, sentence: str, count: int = 1) -> None:
        self.problems[reason] += count
        if sentence not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(sentence)
            _log.warning("%s", sentence)


def _load(path: Path) -> dict[str, Any] | None:
    """What was saved; None when there is nothing.

    Raises:
        StateError: The file holds something else.
        OSError: It can't be read.
    """
    try:
        with path.open(encoding="utf-8") as file:
            content = json.loads(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise StateError(f"{error}; valid is the JSON that an agent saves.") from error
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise StateError(f"it is not of version {VERSION}.")
    if not isinstance(content.get("cursor"), dict) or not isinstance(content.get("ledger"), dict):
        raise StateError("it lacks a cursor or a ledger.")
    return content


def _last_events(paths: Iterable[Path]) -> list[Event]:
    """The last events of each log, sorted by time."""
    events: dict[str, Event] = {}
    for path in paths:
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            for line in file.read(_TAIL_BYTES).split(b"\n"):
                with contextlib.suppress(StateError):
                    event = Event.from_json(line.decode(errors="replace"))
                    events[event.id] = event
    return sorted(events.values(), key=lambda event: event.time)

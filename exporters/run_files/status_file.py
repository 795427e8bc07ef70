"""Statuses as files in `ASD_RUN_DIR`, so that an agent can serve the metrics of living and dead ranks."""

import contextlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from asd.config import Config
from asd.errors import StateError
from asd.event import Event
from asd.judge.monitor import Monitor
from asd.judge.status import Status
from asd.origin import Origin
from asd.regular_file import read_regular
from asd.rundir import names as run_dir
from asd.rundir.disk import HeldError, take_lock, write_whole
from asd.verdict import Level

_LOG = logging.getLogger("asd")
_MOST_BYTES = 16 * 1024 * 1024
_INTERVAL_SECONDS = 1.0  # least time between two writes
_numbers = itertools.count()


class _Shared:
    """Common state of the monitors of this process that write one file, as the two of a GAN do."""

    def __init__(self, path: Path) -> None:
        self.parts: dict[int, Status] = {}  # the status of each monitor
        self._path = path.with_name(f".{path.name}.lock")
        self._descriptor = self._process = 0  # a process that was forked off does not have the lock

    def other(self, owner: str) -> str:
        """Returns the other writer of the file; empty if there is none, or if no lock is possible."""
        if self._process == os.getpid():
            return ""
        try:
            self._descriptor = take_lock(self._path, owner, by_process=True)
        except HeldError as error:
            return error.owner
        except OSError:
            return ""
        self._process = os.getpid()
        return ""

    def release(self) -> None:
        """Lets another process write the file."""
        if self._process == os.getpid():
            os.close(self._descriptor)
            self._process = 0


_shared: dict[Path, _Shared] = {}


class StatusFile:
    """Status file of a rank: rewritten after a step when it is older than an interval.

    It is written at once after a first-level anomaly or a problem, and when the training begins and ends. Several
    monitors of a process write it together, see `Status.together`; a training that begins when all others have ended
    starts at 0. It is not synced to the disk: only the events must not be lost, and they are in the event log.

    While another process writes the file this one does not, and logs that once. The file belongs to the first writer,
    until its training or its process ends.

    Args:
        path: The file; its folder is made when needed.
        clock: Seconds, from any point in time; never goes back.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.clock = clock
        self._next = 0.0  # when the next write is due
        self._due = True
        self._active = self._failed = False
        self._other = ""
        self._number, self._shared = next(_numbers), _shared.setdefault(path.absolute(), _Shared(path))

    def __call__(self, event: Event) -> None:
        """Makes a write due at once after a first-level anomaly, or a problem other than with the file itself."""
        self._due = self._due or event.level is Level.ERROR or (event.kind == "problem" and not self._failed)

    def after_step(self, monitor: Monitor, events: Sequence[Event]) -> None:  # noqa: ARG002 - see asd.sinks
        """Writes the file if it is due; after an OSError it is retried when it is due again."""
        now = self.clock()
        parts = self._shared.parts
        if not (monitor.status.steps or any(part.active for part in parts.values())):
            parts.clear()  # the trainings before this one have ended
        parts[self._number] = monitor.status
        status = Status.together(parts.values())
        active = status.active
        if not self._due and active == self._active and now < self._next:
            return
        self._due, self._active, self._next = False, active, now + _INTERVAL_SECONDS
        self._failed = True
        if self._is_ours(status):
            write_whole(self.path, status.to_json(), flush=False)
        self._failed = False
        if not active:
            self._shared.release()

    def _is_ours(self, status: Status) -> bool:
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        other = self._shared.other(f"process {status.pid} on {status.host}, run {status.run}")
        if other and other != self._other:
            words = "%s is written by %s; this one, process %d, does not write it, and both write the same event log. "
            words += "Set a different ASD_RUN_DIR for each training"
            _LOG.warning(words, self.path, other, status.pid)
        self._other = other
        return not other


class _Known(NamedTuple):
    stamp: tuple[int, ...]
    status: Status


class StatusFiles:
    """Reader of the statuses of all ranks; for a torn or corrupt file the last good status stays.

    Args:
        folders: The run directories; they need not exist.
        files: Returns the status files in a folder.
        reduce: Removes unneeded parts of a status.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        files: Callable[[Path], Sequence[Path]] = run_dir.status_files,
        reduce: Callable[[Status], Status] = lambda status: status,
    ) -> None:
        self.folders = list(folders)
        self._files = files
        self._reduce = reduce
        self.unreadable: dict[str, str] = {}
        self._known: dict[Path, _Known] = {}

    def poll(self) -> list[Status]:
        """Returns the current statuses; sets `unreadable` to files that could not be read, with reasons."""
        self.unreadable = {}
        found: dict[Path, _Known] = {}
        for folder in self.folders:
            try:
                paths = self._files(folder)
            except OSError as error:
                self.unreadable[str(folder)] = error.strerror or str(error)
                found.update((path, known) for path, known in self._known.items() if path.parent == folder)
                continue
            for path in paths:
                known = self._read(path)
                if known is not None:
                    found[path] = known
        self._known = found
        return [known.status for known in found.values()]

    def _read(self, path: Path) -> _Known | None:
        known = self._known.get(path)
        try:
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_ino, status.st_size
            if known is None or known.stamp != stamp:
                text = read_regular(path, _MOST_BYTES).decode(errors="replace")
                known = _Known(stamp, self._reduce(Status.from_json(text)))
        except FileNotFoundError:
            return None
        except OSError as error:
            self.unreadable[str(path)] = error.strerror or str(error)
        except StateError as error:
            self.unreadable[str(path)] = str(error)
        return known


def open_status_file(config: Config, origin: Origin) -> StatusFile:
    """Returns the status file of a rank; factory for the entry-point group `asd.sinks`."""
    return StatusFile(run_dir.status_file(Path(config.run_dir), origin.rank))

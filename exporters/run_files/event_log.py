"""Events as JSON lines in `ASD_RUN_DIR`, one file per rank, the older ones in `.1`, `.2` and so on."""

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path

from asd.config import Config
from asd.errors import StateError
from asd.event import Event
from asd.origin import Origin
from asd.regular_file import open_regular, read_regular
from asd.rundir.disk import lock, sync
from asd.rundir.names import event_file
from asd.verdict import Level

_PATIENCE = 1.0  # seconds to wait for another process; a stopped one must not hold up a training
_ATTEMPTS = 16  # most rotations by other processes while one event is written
_NONE = -1


class EventLog:
    """Log that appends each event with one write; several processes may write the file, also while one rotates it.

    First-level events are on the disk when the call returns. A line torn by a kill or a full disk is ended before the
    next event.

    Args:
        path: The file; its folder is made when the first event comes.
        max_bytes: A file that would grow beyond this is rotated: renamed to `.1`, the former `.1` to `.2`, and so on.
        keep: Number of rotated files that are kept, at least 1; the oldest is deleted.
    """

    def __init__(self, path: Path, max_bytes: int = 64 << 20, keep: int = 4) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.keep = keep
        self._name = os.fspath(path)
        self._descriptor = _NONE
        self._identity = (0, 0)
        self._process = os.getpid()
        self._end = 0  # size of the file after the last event, which was whole
        self._threads = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Appends `event`."""
        self.append(event.to_json().encode(errors="backslashreplace") + b"\n", sync=event.level is Level.ERROR)

    def append(self, line: bytes, *, sync: bool = False) -> None:
        """Appends one line, which ends with a line break; after an OSError at most a torn line was written.

        Args:
            line: With its line break.
            sync: Whether it is on the disk when the call returns.
        """
        if self._process != os.getpid():
            self._after_fork()
        with self._threads:
            try:
                self._append(line)
                if sync:
                    os.fsync(self._descriptor)
            except OSError as error:
                error.filename = error.filename or self._name
                self.close()  # the file may be stale, as after a restart of an NFS server
                raise

    def close(self) -> None:
        """Closes the file; the next event opens it again."""
        if self._descriptor != _NONE:
            descriptor, self._descriptor = self._descriptor, _NONE
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # or it never was opened
            if self._process == os.getpid():
                self.close()

    def _append(self, line: bytes) -> None:
        for attempt in range(_ATTEMPTS + 1):
            if self._descriptor == _NONE:
                self._open()
            descriptor = self._descriptor
            alone = _lock(descriptor)
            try:
                size = self._size()
                if attempt < _ATTEMPTS:
                    if size == _NONE:  # renamed or deleted by another
                        self.close()
                        continue
                    if alone and size and size + len(line) > self.max_bytes and self._rotate():
                        self.close()
                        continue
                self._write(line, size)
                return
            finally:
                if self._descriptor == descriptor:  # closing unlocks as well
                    with contextlib.suppress(OSError):
                        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _write(self, line: bytes, size: int) -> None:
        if size == _NONE:
            size = os.fstat(self._descriptor).st_size
        if size and size != self._end and os.pread(self._descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # a full disk or a kill cut the last line
        if os.write(self._descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._name)
        self._end = size + len(line)

    def _size(self) -> int:
        """Returns the size of the file, or `_NONE` if the open file no longer has its name."""
        try:
            status = os.stat(self._name)
        except (FileNotFoundError, NotADirectoryError):
            return _NONE
        return status.st_size if (status.st_dev, status.st_ino) == self._identity else _NONE

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND
        try:
            self._descriptor = open_regular(self._name, flags)
        except FileNotFoundError:
            made = [folder for folder in self.path.parents if not folder.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = open_regular(self._name, flags | os.O_CREAT)
            for path in (self.path, *made):
                sync(path.parent)
        status = os.fstat(self._descriptor)
        self._identity = status.st_dev, status.st_ino
        self._end = 0

    def _rotate(self) -> bool:
        """Renames each file to the next number; returns False on failure: a large file is better than a lost event."""
        names = [self._name, *(f"{self._name}.{age}" for age in range(1, self.keep + 1))]
        # A process killed here leaves a gap; only files newer than the gap need to move.
        last = next((age for age, name in enumerate(names) if age and not os.path.lexists(name)), self.keep)
        try:
            for age in range(last, 0, -1):
                os.replace(names[age - 1], names[age])
        except OSError:
            return False
        return True

    def _after_fork(self) -> None:
        """Forgets the file after a fork: the child's descriptor shares the parent's lock, or is another file by now."""
        if self._descriptor != _NONE:
            with contextlib.suppress(OSError):
                status = os.fstat(self._descriptor)
                if (status.st_dev, status.st_ino) == self._identity:
                    os.close(self._descriptor)
        self._descriptor = _NONE
        self._threads = threading.Lock()
        self._process = os.getpid()


def open_event_log(config: Config, origin: Origin) -> EventLog:
    """Returns the event log of a rank; factory for the entry-point group `asd.sinks`."""
    return EventLog(event_file(Path(config.run_dir), origin.rank))


def read_events(path: Path, passed_over: list[str] | None = None) -> list[Event]:
    """Returns all events of a file; torn lines, from a kill or a full disk, and lines of other content are skipped.

    Args:
        path: The file.
        passed_over: Receives the reason for each such line.
    """
    events, reasons = [], passed_over if passed_over is not None else []
    *lines, torn = read_regular(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            events.append(Event.from_json(line.decode(errors="replace")))
        except StateError as error:
            reasons += [f"line {number}: {str(error)[:200]}"] if line.strip() else []
    reasons += [f"line {len(lines) + 1}: it has no end"] if torn else []
    return events


def _lock(descriptor: int) -> bool:
    """Waits until no other process writes; returns False after a time-out. Some file systems have no locks."""
    try:
        return lock(descriptor, _PATIENCE)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True


_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

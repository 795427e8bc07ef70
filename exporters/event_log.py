"""Events as JSON lines in `ASD_RUN_DIR`, one file per rank."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from asd.config import Config
from asd.event import Event
from asd.monitor import Origin
from asd.verdict import Level

__all__ = ["EventLog", "open_event_log", "read_events"]


class EventLog:
    """Appends each event with one write, so that lines of several processes never mix; first-level events are synced.

    Args:
        path: The file; its folder is made when the first event comes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Appends `event`; raises OSError when the file can't be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = event.to_json().encode(errors="backslashreplace") + b"\n"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a full disk or a kill cut the last line
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            if event.level is Level.ERROR:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_event_log(config: Config, origin: Origin) -> EventLog:
    """Factory for the entry-point group `asd.sinks`."""
    return EventLog(Path(config.run_dir) / f"events-rank{origin.rank}.jsonl")


def read_events(path: Path) -> list[Event]:
    """All events of a file; torn lines, left by a killed process or a full disk, are passed over.

    Raises:
        StateError: A line that is complete is no event.
    """
    whole, _, _torn = path.read_bytes().rpartition(b"\n")
    return [
        Event.from_json(line.decode(errors="replace")) for line in whole.split(b"\n") if line and not _is_torn(line)
    ]


def _is_torn(line: bytes) -> bool:
    """Whether it has the beginning of an event but not its end."""
    return line[:2] in (b"{", b'{"') and not line.endswith(b"}}")

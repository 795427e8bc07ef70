"""Follows the logs and passes every alarm to a sink once, despite crashes and rotated logs.

The order is: read lines, write their events, save the position. A process that dies in between re-reads the same lines;
their events have the same ids, and are known from the event log.
"""

import contextlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from asd.event import CODE, LEVEL_NAMES, Event
from asd.ingest.alarms import Alarms
from asd.records import load_if_there
from asd.rundir.disk import sync, write_whole
from asd.rundir.follow import Follower, Line
from asd.rundir.names import cursor_file, event_files, ingest_file


class Ingest:
    """Reader of many logs.

    Args:
        files: Returns the logs; called in every step.
        sink: Called with every new event; raises OSError when it cannot be written.
        run_dir: Folder of the sink's log and of the position in the logs.
    """

    def __init__(
        self, files: Callable[[], Iterable[Path]], alarms: Alarms, sink: Callable[[Event], None], run_dir: Path
    ) -> None:
        self.lines, self.events = 0, Counter(dict.fromkeys(LEVEL_NAMES.values(), 0))  # events written, by level
        self.unexplained: set[Path] = set()  # files that hold our fault code, of which nothing came
        self._alarms, self._sink = alarms, sink
        self._log, self._cursor = ingest_file(run_dir), cursor_file(run_dir)
        written = [path for path in event_files(run_dir) if path.name.startswith(self._log.name)]
        self._known = set(_ids(written[-2:]))  # more than one batch, even if the log was rotated in the middle of it
        self._explained: set[Path] = set()
        self._pending: deque[Event] = deque()
        self._unwritten = False
        self._saved = load_if_there(self._cursor, "cursor", "a file that `asd ingest` wrote, or none")
        self.follower = Follower(files, self._saved)

    def step(self, limit: int = 10_000) -> bool:
        """Reads some lines and writes their events; returns whether more can be read now.

        Everything that was read is written before more is read, so that it can be called again after an OSError.
        """
        if self._unwritten:
            self._write()
        lines = self.follower.poll(limit)
        self._read(lines)
        before = self._saved
        self._write()
        moved = bool(lines) or self._saved != before
        files = self.follower.state()["files"].values()
        return moved and (len(lines) >= limit or any(file["behind"] and not file["missing"] for file in files))

    def finish(self) -> None:
        """Reads the last line of each file, where it has no line feed and nobody waits for one."""
        self._read(self.follower.unfinished())
        self._write()

    def _read(self, lines: list[Line]) -> None:
        self.lines += len(lines)
        for line in map(_plain, lines):
            found = self._alarms.read(line)
            self._pending.extend(found)
            if found:
                self._explained.add(line.path)
            elif CODE in line.text.upper() and "event=" not in line.text:  # which is our own log
                self.unexplained.add(line.path)
        self.unexplained -= self._explained

    def _write(self) -> None:
        self._unwritten = True
        while self._pending:
            if self._pending[0].id not in self._known:
                self._sink(self._pending[0])
                if len(self._known) > 1 << 18:  # beyond that readers of the log alone pass over what they know
                    self._known.clear()
                self._known.add(self._pending[0].id)
                self.events[LEVEL_NAMES[self._pending[0].level]] += 1
            self._pending.popleft()
        state = self.follower.state()
        if state != self._saved:
            if self._log.exists():  # the position must never be ahead of the events, not even after a power cut
                sync(self._log)
            write_whole(self._cursor, json.dumps(state))
            self._saved = state
        self._unwritten = False


def _plain(line: Line) -> Line:
    """Returns a line of UTF-16 as UTF-8; the patterns are ASCII."""
    return line._replace(text=line.text.replace("\0", "").strip("\r\ufffd")) if "\0" in line.text else line


def _ids(paths: Iterable[Path]) -> Iterator[str]:
    """Yields the ids of the events in these files; torn and foreign lines are skipped."""
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                    yield str(json.loads(line)["id"])

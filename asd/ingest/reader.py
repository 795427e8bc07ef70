"""Follows the logs and hands every alarm to a sink once, whatever happens to the logs or to this process.

The order is: read lines, write their events, save how far was read. A process that dies in between reads the same lines
again, and their events, which have the same ids, are known from the event log.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from asd.event import CODE, LEVEL_NAMES, Event
from asd.ingest.alarms import Alarms
from asd.records import fill
from asd.rundir.follow import Follower

__all__ = ["Ingest"]

_VERSION: Final = 1


class Ingest:
    """One reader of many logs.

    Args:
        files: Lists the logs; asked in every step.
        alarms: Reads the lines.
        sink: Is called with every new event, and raises OSError when it can't be written.
        save: Is called with the state after the events of some lines were written; may raise OSError as well.
        known: Ids of the events that were written before, and are not written again.
        state: What `save` was called with last; None to begin anew.

    Attributes:
        lines: Lines read.
        events: Events written, by level: `first`, `second` and `normal`.
        unexplained: Files that hold our fault code, of which nothing came.
        follower: Reads the files, and knows what it could not read.

    Raises:
        StateError: `state` is none.
    """

    def __init__(
        self,
        files: Callable[[], Iterable[Path]],
        alarms: Alarms,
        sink: Callable[[Event], None],
        save: Callable[[dict[str, Any]], None],
        known: Iterable[str] = (),
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.lines = 0
        self.events = Counter(dict.fromkeys(LEVEL_NAMES.values(), 0))
        self._alarms, self._sink, self._save, self._known = alarms, sink, save, frozenset(known)
        self.unexplained: set[Path] = set()
        self._explained: set[Path] = set()
        self._pending: deque[Event] = deque()
        self._unwritten = False
        given = _Saved() if state is None else fill(_Saved, state, "state of the ingest")
        self.follower = Follower(files, given.follower)
        self._saved = dict(state) if state is not None else None

    def step(self, limit: int = 10_000) -> bool:
        """Reads some lines and writes their events; returns whether there is more to read now.

        Nothing is read before everything that was read is written, so after an OSError it can be called again.

        Args:
            limit: Lines to read, at most.

        Raises:
            OSError: The sink or the state can't be written.
        """
        if self._unwritten:
            self._write()
        lines = self.follower.poll(limit)
        self.lines += len(lines)
        for line in lines:
            found = self._alarms.read(line)
            self._pending.extend(found)
            if found:
                self._explained.add(line.path)
            elif CODE in line.text.upper() and "event=" not in line.text:  # which is our own log
                self.unexplained.add(line.path)
        self.unexplained -= self._explained
        before = self._saved
        self._write()
        moved = bool(lines) or self._saved != before
        return moved and (len(lines) >= limit or self._is_behind())

    def _write(self) -> None:
        self._unwritten = True
        while self._pending:
            if self._pending[0].id not in self._known:
                self._sink(self._pending[0])
                self.events[LEVEL_NAMES[self._pending[0].level]] += 1
            self._pending.popleft()
        state = {"version": _VERSION, "follower": self.follower.state()}
        if state != self._saved:
            self._save(state)
            self._saved = state
        self._unwritten = False

    def _is_behind(self) -> bool:
        return any(file["behind"] and not file["missing"] for file in self.follower.state()["files"].values())


@dataclass
class _Saved:
    version: Annotated[Literal[1], Meta(description=str(_VERSION))] = _VERSION
    follower: Annotated[dict[str, Any] | None, Meta(description="an object")] = None

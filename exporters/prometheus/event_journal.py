"""Journal that outlives an agent: its events in the order of arrival, each once, and its state at that point.

The events are numbered. A reader's cursor is the journal's name with the number of the last event that it read.
"""

import contextlib
import json
import os
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from asd.errors import StateError
from asd.event import Event
from asd.exporters.http.event_query import Page
from asd.handler.inputs.cursor import CURSOR, MOST_ANSWER_BYTES
from asd.regular_file import open_regular

_MOST_BYTES = 200 << 20  # of the events that are kept: about 200,000
_SLACK = 64  # a share more than the most before the oldest are dropped
_SIZE = "length(CAST(text AS BLOB))"
_RECENT, _MOST_RECENT = 1000, 4 << 20  # events and characters of what is shown
_PATIENCE_SECONDS = 1.0
_GONE_SECONDS = 60.0  # a handler asks again within half of that
_TABLES = """
CREATE TABLE IF NOT EXISTS journal (name TEXT NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS event (n INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE NOT NULL, text TEXT NOT NULL);
"""


class JournalInUseError(StateError):
    """Raised when another process has the file open."""


class EventJournal:
    """Keeps the last 200 MiB of events in a file; every method may be called from any thread.

    Args:
        path: The file, of this process alone.
        most_bytes: So much of them is kept.
        monotonic: Seconds from any point in time; never goes back.
    """

    def __init__(
        self, path: Path, most_bytes: int = _MOST_BYTES, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self.lost = ""  # where a file that was corrupt is by now; empty for none
        self.fleet = ""  # JSON of this node's devices in training, for who pulls; empty before they are known
        self._monotonic = monotonic
        self._read, self._asked = -1, 0.0
        self._starts: deque[int] = deque(maxlen=16)  # of the last requests
        self._state = "null"
        self._most_bytes = most_bytes
        self._bytes = 0
        self._name = ""
        self._first = self._last = 0  # numbers of the oldest and of the newest event; 0 when there is none
        self._db: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self.problem = ""  # why events can't be kept now, for who asks for them; empty when they can

    @property
    def last(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last

    @property
    def read(self) -> int:
        """The number of the last event that a reader has; -1 without a reader."""
        return self._read if self._monotonic() - self._asked < _GONE_SECONDS else -1

    @property
    def is_open(self) -> bool:
        """True where its file is open."""
        return self._db is not None

    def open(self) -> dict[str, Any] | None:
        """Opens the file, and creates it if needed; a corrupt file is renamed, one in use is a JournalInUseError.

        Returns:
            The last position given to `add`; None before.
        """
        with self._lock, self._guard():
            self._open()
            found: dict[str, Any] | None = json.loads(self._state)
            return found

    def add(self, events: Iterable[Event], state: dict[str, Any] | None = None) -> None:
        """Keeps events, together with what is known by now; all of it is on the disk once this returns.

        Events that were kept before are passed over.
        """
        rows, text = [{"id": bytes.fromhex(each.id), "text": _text(each)} for each in events], json.dumps(state)
        with self._lock, self._guard():
            db = self._db or self._open()
            if not rows and text == self._state:
                return
            db.execute("BEGIN IMMEDIATE")
            try:
                db.execute("UPDATE journal SET state = ?", (text,))
                # INSERT OR IGNORE would spend a number on what it passes over.
                is_new = "NOT EXISTS (SELECT 1 FROM event WHERE id = :id)"
                db.executemany(f"INSERT INTO event (id, text) SELECT :id, :text WHERE {is_new}", rows)
                size = self._bytes + _size(db, self._last)
                if size > self._most_bytes * (1 + 1 / _SLACK):
                    sizes = f"SELECT n, sum({_SIZE}) OVER (ORDER BY n DESC) AS size FROM event"
                    too_many = f"SELECT max(n) FROM ({sizes}) WHERE size > ?"
                    db.execute(f"DELETE FROM event WHERE n <= ({too_many})", (self._most_bytes,))
                    size = _size(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            self._bytes, self._state = size, text
            self._look(db)

    def page(self, after: Sequence[str], limit: int) -> Page:
        """Returns the events after a cursor.

        Args:
            after: Cursors that the asker has; the one of this journal counts. Without it all events are new.
            limit: So many events at most; fewer when they are long.
        """
        with self._lock, self._guard():
            if self.problem:
                raise StateError(self.problem)
            if self._db is None:
                return Page([], "")
            start = self._start(after)
            if start not in self._starts or start == self._last:  # a reader that stands still counts as gone
                self._read, self._asked = max(self.read, start), self._monotonic()
            self._starts.append(start)
            first = self._first or self._last + 1
            missed = max(first - 1 - start, 0)
            events: list[str] = []
            reached, size = start + missed, len("[]\n")
            rows = self._db.execute("SELECT n, text FROM event WHERE n > ? ORDER BY n LIMIT ?", (start, limit))
            for number, text in rows:
                size += len(text.encode()) + len(",\n")
                if events and size > MOST_ANSWER_BYTES:
                    break
                events.append(text)
                reached = number
            return Page(events, f"{self._name}.{reached}", missed)

    def recent(self) -> list[Event]:
        """Returns the last events, the oldest first; at most 1000, fewer when they are long."""
        return list(self.last_events(_RECENT, _MOST_RECENT))

    def last_events(self, most: int, characters: int = _MOST_BYTES) -> Iterator[Event]:
        """Yields at most this many last events, oldest first, without those of a newer version; locks the journal."""
        with self._lock, self._guard():
            sized = "SELECT n, sum(length(text)) OVER (ORDER BY n DESC) AS size FROM event WHERE n > ?"
            query = f"SELECT text FROM event WHERE n >= (SELECT min(n) FROM ({sized}) WHERE size <= ?) ORDER BY n"
            for (text,) in self._db.execute(query, (self._last - most, characters)) if self._db else ():
                with contextlib.suppress(StateError):
                    yield Event.from_json(text)

    def has_after(self, after: Sequence[str]) -> bool:
        """Returns whether events follow the cursors, or there is a problem to report; reads no file."""
        return bool(self.problem) or self._start(after) < self._last

    def close(self) -> None:
        """Closes the file."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._db is not None:
                self._db.close()
            self._db = None

    def _start(self, after: Sequence[str]) -> int:
        """Returns the number of the reader's last event; 0 if it is beyond the journal, as after a restored file."""
        found = (CURSOR.fullmatch(text) for text in after)
        numbers = [int(match["number"]) for match in found if match is not None and match["name"] == self._name]
        number = max(numbers, default=0)
        return number if number <= self._last else 0

    def _look(self, db: sqlite3.Connection) -> None:
        self._first, self._last = db.execute(
            "SELECT (SELECT coalesce(min(n), 0) FROM event), coalesce((SELECT max(n) FROM event), "
            "(SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)"
        ).fetchone()

    def _open(self) -> sqlite3.Connection:
        try:
            db = self._connect()
        except sqlite3.OperationalError:  # locked, or of a file system that is read-only
            raise
        except sqlite3.DatabaseError:
            self.lost = f"{self.path}.corrupt-{time.time_ns()}"
            os.replace(self.path, self.lost)
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            db = self._connect()
        self._db = db
        return db

    def _connect(self) -> sqlite3.Connection:
        for name in (f"{self.path}-wal", f"{self.path}-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.close(open_regular(name))
        os.close(open_regular(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        db = sqlite3.connect(self.path, _PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")  # no memory is shared, as no file system of a network has it
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA temp_store = MEMORY")  # a container may have no place for temporary files
            _check(db)
            self._name = self._prepare(db)
            self._look(db)
            self._bytes = _size(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> str:
        """Makes the tables if they are not there; returns the name of the journal."""
        db.execute("BEGIN EXCLUSIVE")
        for statement in _TABLES.split(";"):
            db.execute(statement)
        row = db.execute("SELECT name, state FROM journal").fetchone()
        if row is None:
            row = (uuid.uuid4().hex, "null")
            db.execute("INSERT INTO journal VALUES (?, ?)", row)
        db.execute("COMMIT")
        self._state = str(row[1])
        return str(row[0])

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if self._db is None and "locked" in str(error):
                raise JournalInUseError(
                    f"the state file {self.path} is in use by another exporter; pass a different one to each."
                ) from error
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise StateError(f"the events in {self.path} can't be kept or read: {reason}.") from error


def _check(db: sqlite3.Connection) -> None:
    damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise sqlite3.DatabaseError(damage)


def _size(db: sqlite3.Connection, after: int = 0) -> int:
    """Returns how many bytes the events after a number have."""
    return int(db.execute(f"SELECT total({_SIZE}) FROM event WHERE n > ?", (after,)).fetchone()[0])


def _text(event: Event) -> str:
    """Returns the event in JSON, with lone surrogates escaped, as no database keeps them."""
    return event.to_json().encode(errors="backslashreplace").decode()

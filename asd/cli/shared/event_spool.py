"""Puts any number of lines in the order of their times, each once, in memory that does not grow with them.

Lines wait in a nameless file among the temporary ones; SQLite, in another, puts in order where they stand there. Both
go with the process.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from asd.errors import StateError

__all__ = ["EventSpool", "SpooledLine"]

_AT_ONCE = 2000  # lines in memory
_SETUP = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA temp_store = FILE",
    "PRAGMA cache_size = -8192",  # KiB; as much again for each of two sorts
    "CREATE TABLE fact (number INTEGER PRIMARY KEY, identity BLOB, time REAL, place INTEGER, size INTEGER)",
)
_ANY_TWICE = "SELECT 1 FROM fact GROUP BY identity HAVING count(*) > 1 LIMIT 1"
_FIRST_OF_EACH = "(SELECT min(number) AS number, time, place, size FROM fact GROUP BY identity)"
_LAST = "(SELECT * FROM {} WHERE size ORDER BY time DESC, number DESC LIMIT ?)"
_IN_ORDER = "SELECT place, size FROM {} WHERE size ORDER BY time, number"

SpooledLine = tuple[bytes, float, str | None]
"""Identity, of two lines with the same one the first counts; time, lines of the same stay in the order they came in;
and text, None when it need not be shown and only keeps later ones with its identity away."""


class EventSpool:
    """Takes lines in, then gives them back in order.

    >>> with EventSpool() as spool:
    ...     spool.add([(b"1", 2.0, "late"), (b"2", 1.0, "early"), (b"1", 0.0, "again"), (b"3", 0.0, None)])
    ...     [line for part in spool.in_order() for line in part]
    ['early', 'late']

    Raises:
        StateError: There is no room for the lines; every method may say so.
    """

    def __init__(self) -> None:
        self._count = self._end = 0
        with ExitStack() as stack, _room():
            self._file = stack.enter_context(tempfile.TemporaryFile())
            self._db = sqlite3.connect("", isolation_level=None)
            stack.callback(self._db.close)
            for statement in _SETUP:
                self._db.execute(statement)
            self._stack = stack.pop_all()

    def __enter__(self) -> EventSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, lines: Iterable[SpooledLine]) -> None:
        """Takes some lines in."""
        facts, texts, number, end = [], [], self._count, self._end
        for identity, time, line in lines:
            text = b"" if line is None else line.encode()
            facts.append((number, identity, time, end, len(text)))
            texts.append(text)
            number, end = number + 1, end + len(text)
        with _room():
            self._file.write(b"".join(texts))
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO fact VALUES (?, ?, ?, ?, ?)", facts)
            self._db.execute("COMMIT")
        self._count, self._end = number, end

    def in_order(self, limit: int | None = None) -> Iterator[list[str]]:
        """The lines that are to be shown, in parts.

        Args:
            limit: Only the last so many; None for all.
        """
        file = self._file.fileno()
        with _room():
            self._file.flush()
            lines = _FIRST_OF_EACH if self._db.execute(_ANY_TWICE).fetchone() else "fact"  # twice is seldom
            if limit is not None:
                lines = _LAST.format(lines)
            found = self._db.execute(_IN_ORDER.format(lines), () if limit is None else (limit,))
        while True:
            with _room():
                part = [os.pread(file, size, place).decode() for place, size in found.fetchmany(_AT_ONCE)]
            if not part:
                return
            yield part

    def last_identities(self, count: int) -> list[bytes]:
        """Those of the last `count` lines that came in, the oldest first."""
        with _room():
            found = self._db.execute("SELECT identity FROM fact ORDER BY number DESC LIMIT ?", (count,)).fetchall()
        return [identity for (identity,) in reversed(found)]


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StateError(
            f"the events can't be put in order: {error}; valid is room for those that are to be shown in the folder "
            "for temporary files, which TMPDIR names."
        ) from error

"""The store: what the fault handler knows, in one SQLite file that survives a kill at any point.

Everything that one batch of events changes, the place up to which the logs were read included, is one transaction.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from asd.errors import StateError
from asd.handler.decision import Decision
from asd.handler.identity import device_key
from asd.handler.schema import CHANGES, SCHEMA, VERSION

__all__ = ["Store"]

_BUSY_SECONDS = 10.0
_MOST = {"seen": 1_000_000, "sighting": 1_000_000, "noise": 100_000, "outbox": 10_000, "decision": 10_000}
_MOST_DEVICES = 100_000
_AGED = ("seen", "sighting", "noise", "software", "strike")


class Store:
    """Opens the database, and makes it when it is not there.

    Args:
        path: The file; None keeps everything in memory.
        set_aside: Whether a corrupt file is renamed and a new one begun; else it is an error.

    Attributes:
        db: The connection. Everything that changes something happens within `transaction`.
        set_aside_as: Where a corrupt file went; None when there was none.
        numbered: Whether every device has a number of its own, as those of `asd run --ranks` do on a CPU too.

    Raises:
        StateError: The file is corrupt, is something else, or is of another version.
        OSError: Its folder can't be made.
    """

    def __init__(self, path: Path | None, *, set_aside: bool = False) -> None:
        self.path = path
        self.set_aside_as: Path | None = None
        self._lease = -1
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.db = self._open()
        except _CorruptError as error:
            if not set_aside or path is None:
                raise StateError(str(error)) from error
            self.set_aside_as = _rename(path)
            self.db = self._open()
        self.numbered = bool(self.meta("numbered"))

    def number_devices(self) -> None:
        """Notes that every device has a number of its own, whatever rank works on it.

        Raises:
            StateError: The database can't be written.
        """
        with self.transaction():
            self.set_meta("numbered", "yes")
        self.numbered = True

    def device_key(self, host: str, device: str, rank: int) -> tuple[str, str, int]:
        """What tells devices apart here."""
        return (host, device, -1) if self.numbered else device_key(host, device, rank)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Turns the errors of SQLite into one sentence.

        Raises:
            StateError: The database can't be read or written.
        """
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"the fault handler's state {self.path} can't be used: {error}.") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Either everything within happens, and is on the disk, or nothing.

        Raises:
            StateError: The database can't be written.
        """
        with self.guard():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def meta(self, name: str, default: str = "") -> str:
        """A value kept under a name."""
        row = self.db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else default

    def number(self, name: str, default: float = 0.0) -> float:
        """The same as a number."""
        return float(self.meta(name) or default)

    def set_meta(self, name: str, value: str | float) -> None:
        """Keeps a value under a name."""
        text = value if isinstance(value, str) else repr(value)
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, text))

    def remember(self, decision: Decision) -> None:
        """Keeps a decision; the last 10,000 are."""
        host, device, rank = decision.device or ("", "", -1)
        self.db.execute(
            "INSERT INTO decision (time, action, host, device, rank, event_id, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (decision.time, decision.action, host, device, rank, decision.event_id, decision.reason),
        )

    def prune(self, before: float) -> None:
        """Forgets facts taken in before `before`, in seconds since the epoch, and the oldest of too many."""
        for table in _AGED:
            self.db.execute(f"DELETE FROM {table} WHERE received < ?", (before,))
        for table, most in _MOST.items():
            unsent = " AND sent IS NOT NULL" if table == "outbox" else ""
            self.db.execute(f"DELETE FROM {table} WHERE n <= (SELECT max(n) FROM {table}) - ?{unsent}", (most,))
        self.db.execute("DELETE FROM cases WHERE closed < ?", (before,))
        self.db.execute(
            "DELETE FROM device WHERE last < ? AND n NOT IN (SELECT device FROM cases) AND "
            "n NOT IN (SELECT n FROM device ORDER BY last DESC LIMIT ?)",
            (before, _MOST_DEVICES),
        )

    def take_lease(self) -> str:
        """Makes this process the one that acts; returns why not, in one sentence, or an empty text.

        The lease ends with the process, however it ends.
        """
        if self.path is None or self._lease >= 0:
            return ""
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "another"
            os.close(descriptor)
            return f"{self.path} is in use by another fault handler (process {owner}); this one stands by."
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._lease = descriptor
        return ""

    def close(self) -> None:
        """Ends the lease and closes the database."""
        self.db.close()
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1

    def _open(self) -> sqlite3.Connection:
        name = ":memory:" if self.path is None else os.fspath(self.path)
        try:
            db = sqlite3.connect(name, _BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise StateError(f"the fault handler's state {self.path} can't be opened: {error}.") from error
        try:
            _prepare(db)
        except sqlite3.OperationalError as error:  # a read-only folder, or another process holds it
            db.close()
            raise StateError(f"the fault handler's state {self.path} can't be opened: {error}.") from error
        except sqlite3.DatabaseError as error:
            db.close()
            raise _CorruptError(
                f"the fault handler's state {self.path} is corrupt: {error}; `asd handler --set-aside` renames it and "
                "begins anew."
            ) from error
        except StateError as error:
            db.close()
            raise StateError(f"the fault handler's state {self.path} {error}") from error
        return db


class _CorruptError(Exception):
    pass


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA cache_size = -16384")
    db.execute("BEGIN IMMEDIATE")
    try:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if not found and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")
            found = VERSION
        while found in CHANGES:
            for statement in CHANGES[found].split(";"):
                db.execute(statement)
            found += 1
            db.execute(f"PRAGMA user_version = {found}")
        _check(found, db.execute("PRAGMA quick_check(1)").fetchone()[0])
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _check(version: int, damage: str) -> None:
    if version != VERSION:
        raise StateError(f"has version {version}; valid is {VERSION}.")
    if damage != "ok":
        raise sqlite3.DatabaseError(damage)


def _rename(path: Path) -> Path:
    """Gives a corrupt database and what belongs to it other names."""
    number = 1
    while (target := path.with_name(f"{path.name}.corrupt{number}")).exists():
        number += 1
    path.replace(target)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).replace(f"{target}{suffix}")
    return target

"""The store: what the fault handler knows, in one SQLite file that survives a kill at any point."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from asd.errors import StateError
from asd.handler.db.schema import FLEET, OLDEST, SCHEMA, VERSION, take_over
from asd.regular_file import open_regular
from asd.rundir.disk import HeldError, take_lock, whole_file

_BUSY_SECONDS = 10.0
_MOST = {"seen": 1_000_000, "sighting": 1_000_000, "software": 100_000, "outbox": 10_000, "cases": 10_000}
_DONE = {"outbox": " AND sent IS NOT NULL", "cases": " AND closed IS NOT NULL"}
_MOST_OF_HOST = 1 << 20  # characters of the strikes of one host: about 800
_SMALLEST = 100  # bytes: the head of every database of SQLite
_AGED = ("seen", "sighting", "software")


def state_file(run_dir: Path, *, dry_run: bool = False) -> Path:
    """Returns the handler's database; a dry run has its own, so that it takes nothing from the real handler."""
    return run_dir / ("handler-dry-run.sqlite" if dry_run else "handler.sqlite")


def existing(path: Path) -> Path:
    """Returns `path`, if a handler has left its database there; else raises a StateError."""
    if not path.exists():
        raise StateError(f"{path} is not there; `asd handler` and `asd run --ranks` make it.")
    return path


def events_file(run_dir: Path) -> Path:
    """Returns the event log of isolations and recoveries; `asd.rundir.names.event_files` finds it too."""
    return run_dir / "events-handler.jsonl"


class Store:
    """Opens the database, and makes it when it is not there.

    Args:
        path: The file; None keeps everything in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lease, self._inode = -1, 0
        self._known: dict[str, str | None] = {}  # what the present transaction has read of the values under names
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.db = self._open()  # the connection. Everything that changes something happens within `transaction`
        if self._version() < VERSION:
            try:
                self._take_over()
            except BaseException:
                self.close()
                raise

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Turns the errors of SQLite, and another database in this place, into a StateError."""
        self._look_there()
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"the fault handler's state {self.path} can't be used: {error}.") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Writes everything within to the disk, or nothing; fails as `guard`."""
        with self.guard():
            self.db.execute("BEGIN IMMEDIATE")
            self._known.clear()
            try:
                yield self.db
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def meta(self, name: str, default: str = "") -> str:
        """Returns a value kept under a name."""
        if name not in self._known or not self.db.in_transaction:
            row = self.db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
            self._known[name] = row and row[0]
        return default if (text := self._known[name]) is None else text

    def number(self, name: str, default: float = 0.0) -> float:
        """Returns a number kept under a name."""
        return float(self.meta(name) or default)

    def set_meta(self, name: str, value: str | float) -> None:
        """Keeps a value under a name."""
        self._known[name] = text = value if isinstance(value, str) else repr(value)
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, text))

    def has(self, where: str, *values: object) -> bool:
        """Returns whether a row matches `where`, the text after FROM."""
        return self.db.execute(f"SELECT 1 FROM {where} LIMIT 1", values).fetchone() is not None

    def insert(self, table: str, **values: object) -> int:
        """Keeps a new row; returns its number."""
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        row = self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING n", tuple(values.values()))
        return int(row.fetchone()[0])

    def prune(self, before: float, strikes_before: float) -> None:
        """Forgets facts, strikes and devices from before these times, and the oldest of too much."""
        for table in _AGED:
            self.db.execute(f"DELETE FROM {table} WHERE received < ?", (before,))
        self.db.execute("DELETE FROM strike WHERE received < ?", (strikes_before,))
        for table, most in _MOST.items():
            is_done = _DONE.get(table, "")
            self.db.execute(f"DELETE FROM {table} WHERE n <= (SELECT max(n) FROM {table}) - ?{is_done}", (most,))
        sizes = (
            "SELECT strike.n AS n, "
            "sum(length(event)) OVER (PARTITION BY host ORDER BY revoked = '' DESC, strike.n DESC) AS size "
            "FROM strike JOIN device ON device.n = device"
        )
        too_many = f"SELECT n FROM ({sizes}) WHERE size > {_MOST_OF_HOST}"
        self.db.execute(f"DELETE FROM strike WHERE n IN ({too_many}) AND settled")
        self.db.execute("DELETE FROM device WHERE last < ? AND n NOT IN (SELECT device FROM cases)", (strikes_before,))

    def take_lease(self) -> str:
        """Makes this process the one that acts until it ends; returns why not, in one sentence, or an empty text."""
        if self.path is None or self._lease >= 0:
            return ""
        try:
            self._lease = take_lock(Path(f"{self.path}.lock"), str(os.getpid()), mode=0o600)
            self._inode = os.stat(self.path).st_ino
        except HeldError as error:
            return f"{self.path} is in use by another fault handler (process {error.owner})."
        except OSError as error:
            raise StateError(f"the lock {error.filename} can't be taken: {error.strerror or error}.") from error
        return ""

    def _look_there(self) -> None:
        """Ensures that no other process finds another database, or its lock free, while this process acts."""
        if self._lease < 0:
            return
        try:
            is_there = os.fstat(self._lease).st_nlink > 0 and os.stat(self.path).st_ino == self._inode  # type: ignore[arg-type]
        except OSError:
            is_there = False
        if not is_there:
            what = f"{self.path} or its .lock was removed or replaced while this fault handler was running"
            raise StateError(f"{what}; end it, and restart it.")

    def close(self) -> None:
        """Ends the lease and closes the database."""
        self.db.close()
        self._end_lease()

    def _end_lease(self) -> None:
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1

    def _version(self) -> int:
        return int(self.db.execute("PRAGMA user_version").fetchone()[0])

    def _take_over(self) -> None:
        """Takes over what an earlier version has left, while no handler of that version is at work on it."""
        with self.guard():
            in_use = self.take_lease()
            if in_use:
                raise StateError(f"{in_use[:-1]} of an earlier version; end that one first.")
            with self.transaction():
                if self._version() < VERSION:  # another process may have done it by now
                    take_over(self.db)
            self._end_lease()

    def _open(self) -> sqlite3.Connection:
        name = ":memory:" if self.path is None else os.fspath(self.path)
        if self.path is not None:
            _make_or_look(self.path)
        try:
            db = sqlite3.connect(name, _BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                if self.path is None:
                    _create(db)
                _prepare(db, self.path)
            except BaseException:
                db.close()
                raise
        except sqlite3.OperationalError as error:  # a read-only folder, or another process holds it
            raise StateError(f"the fault handler's state {self.path} can't be opened: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise _corrupt(self.path, error) from error
        return db


def _make_or_look(path: Path) -> None:
    """Makes a database where there is none; refuses an empty file, in which SQLite would start over and forget all."""
    try:
        journal = os.path.lexists(f"{path}-wal")
        if not os.path.lexists(path):
            if journal:
                raise _corrupt(path, "it is gone, and its -wal is there")
            _make(path)
        for name in (f"{path}-wal", f"{path}-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.close(open_regular(name))
        descriptor = open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StateError(f"the fault handler's state {error.filename or path} can't be opened: {reason}.") from error
    if size < _SMALLEST:
        raise _corrupt(path, f"it has {size} bytes")


def _make(path: Path) -> None:
    """Puts a whole database there, so that a kill leaves none or one; a second process may do the same."""
    with tempfile.TemporaryDirectory() as folder:
        beside = Path(folder, "new")
        db = sqlite3.connect(beside, isolation_level=None)
        try:
            _create(db)
        finally:
            db.close()
        with contextlib.suppress(FileExistsError), whole_file(path, replace=False) as file:
            file.write(beside.read_bytes())


def _create(db: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")


def _corrupt(path: Path | None, why: object) -> StateError:
    how = "put a copy back, or rename it with its -wal and -shm, and a new one is begun"
    return StateError(f"the fault handler's state {path} is corrupt: {why}; {how}.")


def _prepare(db: sqlite3.Connection, path: Path | None) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA cache_size = -16384")
    version, damage = (db.execute(f"PRAGMA {each}").fetchone()[0] for each in ("user_version", "quick_check(1)"))
    if not OLDEST <= version <= VERSION:
        how = "rename it, and a new one is begun; isolated devices are released in the scheduler"
        if version > VERSION:
            how = "restore the copy from before the upgrade, or install the newer mindspore-asd that wrote it"
        valid = f"it must be {OLDEST} to {VERSION}"
        raise StateError(f"the fault handler's state {path} has version {version}; {valid}: {how}.")
    if damage != "ok":
        raise sqlite3.DatabaseError(damage)
    db.execute(FLEET)

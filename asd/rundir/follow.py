"""Follows growing files, line by line, through rotation and restarts.

A file is known by its inode, by a hash of its first line, and by a hash of what stands right before the place up to
which it was read. So it is found again under another name (rotation by renaming), a copy of it is not read twice
(rotation by copying and truncating), and another file in its place is read from its beginning.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from asd.rundir.cursor import UNSEEN, Cursor, holds_beginning, new_cursor, restore_cursors, save_cursors

__all__ = ["Follower", "Line"]

_BLOCK = 1 << 18
_AT_ONCE = 1 << 24  # bytes of one poll: bounds the memory it takes
_GONE = 128  # so many files that are gone are remembered, in case they come back
_SETTLED = 1.0  # seconds; a file changed more recently may change again without a new time of change

_Found = dict[str, tuple[Path, os.stat_result]]


class Line(NamedTuple):
    """One complete line.

    Attributes:
        path: The file, by its name when it was read.
        offset: Where in the file the line begins, in bytes.
        text: The line without its end; bytes that are no UTF-8 are replaced.
        key: The same for the same line however often it is read, also after its file was renamed.
    """

    path: Path
    offset: int
    text: str
    key: str


class _Batch:
    """What one poll returns, and when it is enough."""

    def __init__(self, limit: int) -> None:
        self.lines: list[Line] = []
        self.bytes = 0
        self._limit = limit

    @property
    def full(self) -> bool:
        return len(self.lines) >= self._limit or self.bytes >= _AT_ONCE


class Follower:
    """Reads complete lines of growing, rotating files; knows how far it has read.

    Empty lines are passed over, and so are the NUL characters that truncating leaves before a line.

    Args:
        files: Lists the files to follow, the older part of a rotated log before the newer; asked in every poll.
        state: What `state` returned, to go on there.
        longest: Longer lines are passed over, in bytes.

    Attributes:
        skipped: Lines passed over because they were too long, since this follower was made.
        lost: Files that vanished or shrank though there was known to be more to read, since this follower was made.
        unreadable: Files that can't be opened now, with the reason.

    Raises:
        StateError: `state` is none.
    """

    def __init__(
        self,
        files: Callable[[], Iterable[Path]],
        state: Mapping[str, Any] | None = None,
        *,
        longest: int = 1 << 20,
    ) -> None:
        self.skipped = 0
        self.lost = 0
        self.unreadable: dict[str, str] = {}
        self._files = files
        self._longest = longest
        self._cursors = {} if state is None else restore_cursors(state)

    def poll(self, limit: int = 10_000) -> list[Line]:
        """The lines that were completed since the last poll, per file in their order; at most `limit`.

        There may be more, until it returns none.
        """
        found = self._scan()
        if any(cursor.missing == 0 and key not in found for key, cursor in self._cursors.items()):
            found = self._scan()  # a rotation was going on
        batch = _Batch(limit)
        for key, (path, status) in found.items():
            try:
                self._look(key, path, status, found, batch)
            except FileNotFoundError:
                continue  # renamed or removed this moment
            except OSError as error:
                self.unreadable[str(path)] = _reason(error)
        self._age(found)
        return batch.lines

    def state(self) -> dict[str, Any]:
        """How far all lines returned so far reach, as something JSON can hold; a bounded amount per file."""
        return save_cursors(self._cursors)

    def _scan(self) -> _Found:
        """What is there now, by inode; a file of several names counts once."""
        found: _Found = {}
        self.unreadable = {}
        try:
            paths = list(self._files())
        except OSError as error:
            self.unreadable[str(error.filename or ".")] = _reason(error)
            return found
        for path in paths:
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.unreadable[str(path)] = _reason(error)
                continue
            if stat.S_ISREG(status.st_mode):
                found.setdefault(_key(status), (path, status))
            else:
                self.unreadable[str(path)] = "It is no regular file"
        return found

    def _look(self, key: str, path: Path, status: os.stat_result, found: _Found, batch: _Batch) -> None:
        """Reads what is new in one file."""
        cursor = self._cursors.get(key)
        if cursor is None and status.st_size == 0:
            return
        if cursor is not None and cursor.seen == (status.st_size, status.st_mtime_ns):
            cursor.path = str(path)
            return
        descriptor = _open(path)
        try:
            status = os.fstat(descriptor)
            if _key(status) != key:
                return  # another file has this name by now; the next poll sees both
            if cursor is not None and not cursor.fits(descriptor):
                del self._cursors[key]
                self._cursors[f"{key} {cursor.fingerprint}"] = cursor  # a copy may go on where it ended
                cursor = None
            if cursor is None or cursor.copy:
                cursor = self._begin(key, path, descriptor, found)
            if cursor is None or cursor.copy:
                return
            cursor.path = str(path)
            self._read(cursor, descriptor, path, batch)
            cursor.behind = cursor.behind and cursor.offset < os.fstat(descriptor).st_size
            settled = time.time() - status.st_mtime > _SETTLED and not cursor.behind
            cursor.seen = (status.st_size, status.st_mtime_ns) if settled else UNSEEN
        finally:
            os.close(descriptor)

    def _begin(self, key: str, path: Path, descriptor: int, found: _Found) -> Cursor | None:
        """The cursor of a file that is new or was the same as another so far; None before its first line."""
        cursor = new_cursor(str(path), descriptor)
        if cursor is None:
            return None
        known = self._cursors.pop(key, None)  # as a copy
        for other_key, other in list(self._cursors.items()):
            if other.copy or other.head != cursor.head or Path(other.path).parent != path.parent:
                continue
            same = _is_copy(descriptor, other, found[other_key][0], other_key) if other_key in found else None
            copied = known if known is not None and known.fingerprint == other.fingerprint else None
            reached = other.offset
            if same:
                cursor.copy, cursor.fingerprint, cursor.skipping = True, other.fingerprint, other.skipping
            elif same is None and (other.fits(descriptor) or (copied is not None and other_key in found)):
                cursor = self._cursors.pop(other_key)  # this is what is left of it
            elif same is None and copied is not None and copied.fits(descriptor):
                reached = copied.offset  # a log of its own that began like one that is gone
            else:
                continue
            cursor.move(descriptor, min(reached, os.fstat(descriptor).st_size))
            break
        self._cursors[key] = cursor
        return cursor

    def _read(self, cursor: Cursor, descriptor: int, path: Path, batch: _Batch) -> None:
        """Adds the complete lines from the cursor on, and moves it behind them."""
        place = offset = cursor.offset
        rest = b""  # of the file from `place` on
        cursor.behind = True
        while not batch.full:
            block = os.pread(descriptor, _BLOCK, place + len(rest))
            if not block:
                cursor.behind = False
                break
            *complete, rest = (rest + block).split(b"\n")
            for raw in complete:
                if batch.full:
                    rest = b""  # this poll goes no further
                    break
                self._take(cursor, path, place, raw, batch)
                place = offset = place + len(raw) + 1
            text = rest.lstrip(b"\0")
            if cursor.skipping or len(text) > self._longest:
                batch.bytes += len(rest)
                place = offset = place + len(rest)
                cursor.skipping, rest = True, b""
            else:
                place, rest = place + len(rest) - len(text), text
        if offset != cursor.offset:
            cursor.move(descriptor, offset)

    def _take(self, cursor: Cursor, path: Path, place: int, raw: bytes, batch: _Batch) -> None:
        text = raw.lstrip(b"\0")
        batch.bytes += len(text)
        if cursor.skipping or len(text) > self._longest:
            cursor.skipping = False
            self.skipped += 1
            return
        place += len(raw) - len(text)
        text = text.removesuffix(b"\r")
        if text:
            batch.lines.append(Line(path, place, text.decode(errors="replace"), f"{cursor.fingerprint}:{place}"))

    def _age(self, found: _Found) -> None:
        """Forgets files that are gone, except the last ones."""
        hidden = [Path(name) for name in self.unreadable]
        for key, cursor in list(self._cursors.items()):
            if key in found:
                cursor.missing = 0
            elif cursor.missing < 2 and not any(Path(cursor.path).is_relative_to(folder) for folder in hidden):
                cursor.missing += 1
                if cursor.missing == 2:
                    self.lost += cursor.behind
                    cursor.behind = False
                    self._cursors[key] = self._cursors.pop(key)  # the last to go stands last
        gone = [key for key, cursor in self._cursors.items() if cursor.missing == 2]
        for key in gone[:-_GONE]:
            del self._cursors[key]


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _is_copy(descriptor: int, other: Cursor, path: Path, key: str) -> bool | None:
    """Whether a file holds the beginning of what another holds; None when that one is not what it was."""
    try:
        theirs = _open(path)
    except OSError:
        return True  # for now; the next poll knows more
    try:
        if _key(os.fstat(theirs)) != key:
            return True
        return holds_beginning(descriptor, theirs) if other.fits(theirs) else None
    finally:
        os.close(theirs)

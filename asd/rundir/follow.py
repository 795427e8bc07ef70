"""Follows growing files, line by line, through rotation and restarts.

A file is known by its inode, by a hash of its first line, and by a hash of what stands right before the place up to
which it was read. So it is found again under another name (rotation by renaming), a copy of it is not read twice
(rotation by copying and truncating), and another file in its place is read from its beginning.

A round looks at each file once, however many polls it takes to read what is new in all of them. Where something tells
which files were written, a round is through those alone.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from asd.rundir.following.cursor import UNSEEN, Cursor, holds_beginning, new_cursor, restore_cursors
from asd.rundir.following.cursor_table import CursorTable
from asd.rundir.following.lines import Batch, Line
from asd.rundir.following.scan import Scan, key_of, open_to_read, reason_of

__all__ = ["Follower", "Line"]

_SETTLED = 1.0  # seconds; a file changed more recently may change again without a new time of change
_ANEW = 30.0  # seconds after which all files are looked at, whatever is told of them


def _not_told() -> None:
    return None


class Follower:
    """Reads complete lines of growing, rotating files; knows how far it has read.

    Empty lines are passed over, and so are the NUL characters that truncating leaves before a line.

    Args:
        files: Lists the files to follow, the older part of a rotated log before the newer; asked in every round.
        state: What `state` returned, to go on there.
        longest: Longer lines are passed over, in bytes.
        links: Whether symbolic links are followed; where strangers may make them, they lead to files that those may not
            read.
        changed: Tells which files were written since it was asked last; None when any may have been, or may be others.

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
        changed: Callable[[], Collection[Path] | None] = _not_told,
        links: bool = True,
    ) -> None:
        self.skipped = 0
        self.lost = 0
        self.unreadable: dict[str, str] = {}
        self._files = files
        self._longest = longest
        self._changed = changed
        self._links = links
        self._cursors = CursorTable({} if state is None else restore_cursors(state))
        self._scan = Scan()
        self._scanned = -math.inf
        self._waiting: dict[str, None] = {}  # the files that this round has still to look at
        self._is_whole = False  # whether this round is one through all files

    def poll(self, limit: int = 10_000) -> list[Line]:
        """The lines that were completed since the last poll, per file in their order; at most `limit`.

        There may be more, until it returns none.
        """
        batch = Batch(limit, self._longest)
        is_old = bool(self._waiting)
        if is_old:
            self._go_on(batch, is_old=True)
        if not is_old or not (batch.lines or self._waiting):  # an old round knows nothing of what came since
            self._begin_round()
            self._go_on(batch, is_old=False)
        self.lost, self._cursors.lost = self.lost + self._cursors.lost, 0
        self.skipped += batch.skipped
        return batch.lines

    def state(self) -> dict[str, Any]:
        """How far all lines returned so far reach, as something JSON can hold; a bounded amount per file."""
        return self._cursors.state()

    def _go_on(self, batch: Batch, *, is_old: bool) -> None:
        """Looks at the files of a round, until there is enough."""
        while self._waiting and not batch.full:
            key = next(iter(self._waiting))
            if self._is_there(key, batch, is_old=is_old):
                if not batch.full:
                    del self._waiting[key]
            elif is_old:
                is_old = False  # files were renamed since
                self._begin_whole_round()
            else:
                del self._waiting[key]  # renamed or removed this moment; the next round knows more
        if self._is_whole and not self._waiting:
            self._is_whole = False
            self._cursors.age(self._scan.found, self.unreadable)

    def _begin_round(self) -> None:
        """Finds the files to look at: all, or those that were written when that is known."""
        written = self._changed()
        settled = not self.unreadable and not self._cursors.is_restless and time.monotonic() - self._scanned < _ANEW
        if written is None or not settled:
            self._begin_whole_round()
            return
        keys = [self._scan.look_again(path) for path in written if path in self._scan.keys]
        if None in keys:
            self._begin_whole_round()
            return
        self._waiting = dict.fromkeys(key for key in keys if key is not None)
        for key in self._waiting:
            cursor = self._cursors.get(key)
            if cursor is not None:
                cursor.seen = UNSEEN

    def _begin_whole_round(self) -> None:
        self._scanned = time.monotonic()
        self._scan = Scan(self._files, links=self._links)
        if self._cursors.misses(self._scan.found):
            self._scan = Scan(self._files, links=self._links)  # a rotation was going on
        self.unreadable = self._scan.unreadable
        self._waiting, self._is_whole = dict.fromkeys(self._scan.found), True

    def _is_there(self, key: str, batch: Batch, *, is_old: bool) -> bool:
        """Reads a file; False when it is not what it was when the round began."""
        try:
            return self._look(key, batch, is_old=is_old)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.unreadable[str(self._scan.found[key][0])] = reason_of(error)
            return True

    def _look(self, key: str, batch: Batch, *, is_old: bool) -> bool:
        """Reads what is new in one file; False when its name is another's, or in an old round when it has shrunk."""
        path, status = self._scan.found[key]
        cursor = self._cursors.get(key)
        if status.st_size == 0 if cursor is None else cursor.seen == (status.st_size, status.st_mtime_ns):
            self._rename(cursor, path)
            return True
        descriptor = open_to_read(path, links=self._links)
        try:
            if key_of(os.fstat(descriptor)) != key:
                return False
            if cursor is not None and not cursor.fits(descriptor):
                if is_old:
                    return False  # its rest may be in a file that was not there when the round began
                self._cursors.pop(key)
                self._cursors.put(f"{key} {cursor.fingerprint}", cursor)  # a copy may go on where it ended
                cursor = None
            if cursor is None or cursor.copy:
                cursor = self._begin(key, path, descriptor)
            if cursor is not None and not cursor.copy:
                self._read(cursor, descriptor, path, batch)
        finally:
            os.close(descriptor)
        return True

    def _rename(self, cursor: Cursor | None, path: Path) -> None:
        if cursor is not None and cursor.path != str(path):
            cursor.path = str(path)
            self._cursors.moved()

    def _read(self, cursor: Cursor, descriptor: int, path: Path, batch: Batch) -> None:
        status = os.fstat(descriptor)
        self._cursors.moved()
        cursor.path = str(path)
        batch.read(cursor, descriptor, path)
        cursor.behind = cursor.behind and cursor.offset < os.fstat(descriptor).st_size
        settled = time.time() - status.st_mtime > _SETTLED and not cursor.behind
        cursor.seen = (status.st_size, status.st_mtime_ns) if settled else UNSEEN

    def _begin(self, key: str, path: Path, descriptor: int) -> Cursor | None:
        """The cursor of a file that is new or was the same as another so far; None before its first line."""
        cursor = new_cursor(str(path), descriptor)
        if cursor is None:
            return None
        known, found = self._cursors.pop(key), self._scan.found  # known as a copy
        for other_key, other in self._cursors.alike(cursor, path.parent):
            same = _is_copy(descriptor, other, found[other_key][0], other_key) if other_key in found else None
            copied = known if known is not None and known.fingerprint == other.fingerprint else None
            reached = other.offset
            if same:
                cursor.copy, cursor.fingerprint, cursor.skipping = True, other.fingerprint, other.skipping
            elif same is None and (other.fits(descriptor) or (copied is not None and other_key in found)):
                self._cursors.pop(other_key)
                cursor = other  # this is what is left of it
            elif same is None and copied is not None and copied.fits(descriptor):
                reached = copied.offset  # a log of its own that began like one that is gone
            else:
                continue
            cursor.move(descriptor, min(reached, os.fstat(descriptor).st_size))
            break
        self._cursors.put(key, cursor)
        return cursor


def _is_copy(descriptor: int, other: Cursor, path: Path, key: str) -> bool | None:
    """Whether a file holds the beginning of what another holds; None when that one is not what it was."""
    try:
        theirs = open_to_read(path)
    except OSError:
        return True  # for now; the next round knows more
    try:
        if key_of(os.fstat(theirs)) != key:
            return True
        return holds_beginning(descriptor, theirs) if other.fits(theirs) else None
    finally:
        os.close(theirs)

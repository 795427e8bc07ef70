"""Follows growing files, line by line, through rotation by renaming and through restarts."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from asd.rundir.disk import open_to_read
from asd.rundir.follow_cursor import UNSEEN, Cursor, Line, LineBatch, new_cursor, restore_cursors, save_cursors

__all__ = ["Follower", "Line"]

_SETTLED = 1.0  # seconds; a file changed more recently may change again without a new time of change
_GONE = 128  # so many files that are gone are remembered, in case they come back
_ROUNDS = 3  # so often in one poll the files are listed again, when they are renamed meanwhile


class Follower:
    """Reads complete lines of growing, rotating files; knows how far it has read.

    A file is known by its inode and its first line. Empty lines are passed over. A round looks at each file once,
    however many polls it takes to read what is new in all of them.

    Args:
        files: Lists the files to follow, the older part of a rotated log before the newer; asked in every round.
        state: What `state` returned, to go on there.
        longest: Longer lines are passed over, in bytes.
        links: Whether symbolic links are followed; where strangers may make them, they lead to files that those may not
            read.

    Attributes:
        skipped: Lines passed over because they were too long, since this follower was made.
        lost: Files that vanished though there was known to be more to read, since this follower was made.
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
        links: bool = True,
    ) -> None:
        self.skipped = 0
        self.lost = 0
        self.unreadable: dict[str, str] = {}
        self._files = files
        self._longest = longest
        self._links = links
        self._cursors = {} if state is None else restore_cursors(state)
        self._state: dict[str, Any] | None = None  # what `state` returned, as long as it is true
        self._found: dict[str, tuple[Path, os.stat_result]] = {}
        self._waiting: dict[str, None] = {}  # the files that this round has still to look at

    def poll(self, limit: int = 10_000) -> list[Line]:
        """The lines that were completed since the last poll, per file in their order; at most `limit`.

        There may be more, until it returns none.
        """
        batch = LineBatch(limit, self._longest)
        for _ in range(_ROUNDS):
            is_new = not self._waiting
            if is_new:
                self._begin_round()
            is_through = self._go_on(batch)
            if batch.lines or self._waiting or (is_new and is_through):
                break
        self.skipped += batch.skipped
        return batch.lines

    def state(self) -> dict[str, Any]:
        """How far all lines returned so far reach, as something JSON can hold; a bounded amount per file."""
        if self._state is None:
            self._state = save_cursors(self._cursors)
        return self._state

    def _begin_round(self) -> None:
        self._list()
        if any(not cursor.missing and key not in self._found for key, cursor in self._cursors.items()):
            self._list()  # a rotation was going on
        self._note_gone()
        self._waiting = dict.fromkeys(self._found)

    def _list(self) -> None:
        self._found, self.unreadable = {}, {}
        try:
            paths = list(self._files())
        except OSError as error:
            self.unreadable[str(error.filename or ".")] = _reason_of(error)
            return
        for path in paths:
            try:
                status = os.stat(path, follow_symlinks=self._links)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.unreadable[str(path)] = _reason_of(error)
                continue
            if stat.S_ISREG(status.st_mode):
                self._found.setdefault(_key_of(status), (path, status))
            else:
                is_link = stat.S_ISLNK(status.st_mode)
                what = "a symbolic link, which is not followed" if is_link else "no regular file"
                self.unreadable[str(path)] = f"It is {what}"

    def _note_gone(self) -> None:
        """Counts what was not read of files that are gone, and forgets these files except the last ones."""
        hidden = [Path(name) for name in self.unreadable]  # what is in a folder that can't be read may well be there
        for key, cursor in list(self._cursors.items()):
            if key in self._found:
                continue
            if not cursor.missing and not any(Path(cursor.path).is_relative_to(folder) for folder in hidden):
                self._forget(key)
                cursor.missing, cursor.behind = 1, False
                self._cursors[key] = cursor  # the last to go stands last
        for key in [key for key, cursor in self._cursors.items() if cursor.missing][:-_GONE]:
            self._forget(key)

    def _forget(self, key: str) -> None:
        self.lost += self._cursors.pop(key).behind
        self._state = None

    def _go_on(self, batch: LineBatch) -> bool:
        """Reads the files of a round until there is enough; False when one of them was renamed or removed meanwhile."""
        while self._waiting and not batch.full:
            key = next(iter(self._waiting))
            path, status = self._found[key]
            try:
                if not self._look(key, path, status, batch):
                    self._waiting.clear()
                    return False
            except FileNotFoundError:
                self._waiting.clear()
                return False
            except OSError as error:
                self.unreadable[str(path)] = _reason_of(error)
            if not batch.full:
                del self._waiting[key]
        return True

    def _look(self, key: str, path: Path, status: os.stat_result, batch: LineBatch) -> bool:
        """Reads what is new in one file; False when its name is another's."""
        cursor = self._cursors.get(key)
        if cursor is not None and (cursor.path != str(path) or cursor.missing):
            cursor.path, cursor.missing, self._state = str(path), 0, None
        if status.st_size == 0 if cursor is None else cursor.seen == (status.st_size, status.st_mtime_ns):
            return True
        descriptor = open_to_read(path, links=self._links)
        try:
            if _key_of(os.fstat(descriptor)) != key:
                return False
            before = ""
            if cursor is not None and not cursor.fits(descriptor):
                self._forget(key)
                before, cursor = cursor.tail, None
            cursor = cursor or new_cursor(str(path), descriptor, before)
            if cursor is not None:
                self._read(key, cursor, descriptor, path, batch)
        finally:
            os.close(descriptor)
        return True

    def _read(self, key: str, cursor: Cursor, descriptor: int, path: Path, batch: LineBatch) -> None:
        status = os.fstat(descriptor)
        self._cursors[key], self._state = cursor, None
        batch.read(cursor, descriptor, path)
        cursor.tail = cursor.tail_of(descriptor)
        cursor.behind = cursor.behind and cursor.offset < os.fstat(descriptor).st_size
        settled = time.time() - status.st_mtime > _SETTLED and not cursor.behind
        cursor.seen = (status.st_size, status.st_mtime_ns) if settled else UNSEEN


def _key_of(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def _reason_of(error: OSError) -> str:
    return error.strerror or str(error)

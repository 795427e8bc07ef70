"""Follows growing files, line by line, through rotation by renaming and through restarts."""

import contextlib
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from asd.regular_file import open_regular
from asd.rundir.follow_cursor import (
    UNSEEN,
    Cursor,
    Line,
    LineBatch,
    fingerprint_of,
    new_cursor,
    restore_cursors,
    save_cursors,
)

__all__ = ["Follower", "Line"]

_SETTLED = 1.0  # seconds; a file changed more recently may change again without a new time of change
_GONE = 128  # so many files that are gone are remembered, in case they come back
_ROTATED = re.compile(r"\.[0-9]+\Z", re.ASCII)
_ROUNDS = 3  # so often in one poll the files are listed again, when they are renamed meanwhile

_Folders = dict[Path, dict[str, list[str]]]
"""The keys of the files of each log, the oldest part first, by folder and log; the next one to read first."""


class Follower:
    """Reads complete lines of growing, rotating files; knows how far it has read.

    A file is known by its inode and its first line. Empty lines are passed over. Folders take turns, and the logs in a
    folder: a file in which much is new, or a hole of any size, delays no other one.

    Args:
        files: Lists the files to follow, the older part of a rotated log before the newer; asked in every poll.
        state: What `state` returned, to go on there.
        longest: Longer lines are passed over, in bytes.
        links: Whether symbolic links are followed; where strangers may make them, they lead to files that those may not
            read.
    """

    def __init__(
        self,
        files: Callable[[], Iterable[Path]],
        state: Mapping[str, Any] | None = None,
        *,
        longest: int = 1 << 20,
        links: bool = True,
    ) -> None:
        self.skipped = 0  # lines passed over because they were too long, since this follower was made
        self.lost = 0  # files that vanished though there was known to be more to read, since this follower was made
        self.unreadable: dict[str, str] = {}  # files that can't be opened now, with the reason
        self._files = files
        self._longest = longest
        self._links = links
        self._cursors = {} if state is None else restore_cursors(state)
        self._state: dict[str, Any] | None = None  # what `state` returned, as long as it is true
        self._found: dict[str, tuple[Path, os.stat_result]] = {}
        self._waiting: _Folders = {}  # what is still to be looked at
        self._held: _Folders = {}
        # folders that had no turn yet, where the polls so far were not long enough for all
        self.unserved: set[Path] = set()

    def poll(self, limit: int = 10_000, held: Collection[Path] = ()) -> list[Line]:
        """Returns the lines that were completed since the last poll, per file in their order; at most `limit`.

        There may be more, until it returns none. Folders in `held` are not read this time.
        """
        batch = LineBatch(limit, self._longest)
        for _ in range(_ROUNDS):
            self._begin_round(held)
            if self._go_on(batch) or batch.lines:
                break
        self.skipped += batch.skipped
        return batch.lines

    def behind(self) -> dict[Path, int]:
        """Returns the bytes still to be read, by folder; folders without any are left out."""
        found: Counter[Path] = Counter()
        for folder, logs in (*self._waiting.items(), *self._held.items()):
            for key in (key for keys in logs.values() for key in keys):
                cursor = self._cursors.get(key)
                found[folder] += max(self._found[key][1].st_size - (cursor.offset if cursor else 0), 0)
        return dict(+found)

    def unfinished(self) -> list[Line]:
        """Returns the last line of each file that has no line feed yet; it does not count as read."""
        found = []
        for key, (path, _) in self._found.items():
            with contextlib.suppress(OSError), open(open_regular(path, links=self._links), "rb") as file:
                cursor = self._cursors.get(key)
                raw = os.pread(file.fileno(), self._longest + 1, offset := cursor.offset if cursor else 0)
                if (
                    raw.strip(b"\0")
                    and len(raw) <= self._longest
                    and b"\n" not in raw
                    and not (cursor and cursor.skipping)
                ):
                    name = cursor.fingerprint if cursor else fingerprint_of(file.fileno(), raw)
                    found.append(Line(path, offset, raw.decode(errors="replace"), f"{name}:{offset}"))
        return found

    def state(self) -> dict[str, Any]:
        """Returns the positions behind all lines returned so far, ready for JSON; of bounded size per file."""
        if self._state is None:
            self._state = save_cursors(self._cursors)
        return self._state

    def _begin_round(self, held: Collection[Path]) -> None:
        self._list()
        if any(not cursor.missing and key not in self._found for key, cursor in self._cursors.items()):
            self._list()  # a rotation was going on
        self._note_gone()
        found: _Folders = {}
        for key, (path, _) in self._found.items():
            log = path.with_name(_ROTATED.sub("", path.name))
            found.setdefault(path.parent, {}).setdefault(str(log), []).append(key)
        self._held = {folder: found.pop(folder) for folder in held if folder in found}
        order = dict.fromkeys((*(each for each in self._waiting if each in found), *found))
        self._waiting = {folder: _ordered(found[folder], self._waiting.get(folder, ())) for folder in order}
        self.unserved = self.unserved & set(self._waiting) or set(self._waiting)

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
        """Gives turns until there is enough; False when a file was renamed or removed meanwhile."""
        while self._waiting and not batch.full:
            folder = next(iter(self._waiting))
            logs = self._waiting.pop(folder)
            log = next(iter(logs))
            keys = logs.pop(log)
            self.unserved.discard(folder)
            if not self._read_in_turn(keys, batch):
                return False
            if keys:
                logs[log] = keys
            if logs:
                self._waiting[folder] = logs
        return True

    def _read_in_turn(self, keys: list[str], batch: LineBatch) -> bool:
        """Reads the files of one log, and takes those away that were read to their end; else as `_look`."""
        batch.begin_turn()
        while keys and not batch.turn_is_over:
            path, status = self._found[keys[0]]
            more = False
            try:
                if not self._look(keys[0], path, status, batch):
                    return False
                cursor = self._cursors.get(keys[0])
                more = cursor is not None and cursor.behind
            except FileNotFoundError:
                return False
            except OSError as error:
                self.unreadable[str(path)] = _reason_of(error)
            if not more:
                del keys[0]
        return True

    def _look(self, key: str, path: Path, status: os.stat_result, batch: LineBatch) -> bool:
        """Reads the new lines of one file; False when its name belongs to a different file."""
        cursor = self._cursors.get(key)
        if cursor is not None and (cursor.path != str(path) or cursor.missing):
            cursor.path, cursor.missing, self._state = str(path), 0, None
        if status.st_size == 0 if cursor is None else cursor.seen == (status.st_size, status.st_mtime_ns):
            return True
        descriptor = open_regular(path, links=self._links)
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


def _ordered(logs: dict[str, list[str]], before: Iterable[str]) -> dict[str, list[str]]:
    """Returns the logs, those in `before` first and in that order."""
    return {log: logs[log] for log in dict.fromkeys((*(each for each in before if each in logs), *logs))}


def _key_of(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def _reason_of(error: OSError) -> str:
    return error.strerror or str(error)

"""The cursors of all files, which finds those of files that begin alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from asd.rundir.following.cursor import Cursor, save_cursors

__all__ = ["CursorTable"]

_GONE = 128  # so many files that are gone are remembered, in case they come back


class CursorTable:
    """Cursors by the keys of their files.

    Args:
        cursors: Those there are.

    Attributes:
        lost: Files that vanished though there was known to be more to read.
        is_restless: Whether some file is a copy of another so far, or has just gone: then what becomes of one file may
            change what another one is.
    """

    def __init__(self, cursors: dict[str, Cursor]) -> None:
        self.lost = 0
        self.is_restless = False
        self._cursors = cursors
        self._heads: dict[str, dict[str, None]] = {}
        self._state: dict[str, Any] | None = None  # what `state` returned, as long as it is true
        for key, cursor in cursors.items():
            self._heads.setdefault(cursor.head, {})[key] = None

    def get(self, key: str) -> Cursor | None:
        """The cursor of a file; None when it is not known."""
        return self._cursors.get(key)

    def put(self, key: str, cursor: Cursor) -> None:
        """Keeps the cursor of a file."""
        self._cursors[key] = cursor
        self._heads.setdefault(cursor.head, {})[key] = None
        self.is_restless = self.is_restless or cursor.copy
        self._state = None

    def pop(self, key: str) -> Cursor | None:
        """Forgets the cursor of a file, and returns it."""
        cursor = self._cursors.pop(key, None)
        if cursor is not None:
            del self._heads[cursor.head][key]
            if not self._heads[cursor.head]:
                del self._heads[cursor.head]
            self._state = None
        return cursor

    def moved(self) -> None:
        """Is told when a cursor has changed."""
        self._state = None

    def alike(self, cursor: Cursor, folder: Path) -> list[tuple[str, Cursor]]:
        """The files of a folder that are read and begin as this one does; few, however many files there are."""
        others = [(key, self._cursors[key]) for key in self._heads.get(cursor.head, ())]
        return [(key, other) for key, other in others if not other.copy and Path(other.path).parent == folder]

    def misses(self, found: Collection[str]) -> bool:
        """Whether a file that was there is not among those that were found."""
        return any(cursor.missing == 0 and key not in found for key, cursor in self._cursors.items())

    def age(self, found: Collection[str], hidden: Iterable[str]) -> None:
        """Forgets files that are gone, except the last ones.

        Args:
            found: The keys of what is there.
            hidden: Files and folders that can't be read now: what is in them may well be there.
        """
        folders = [Path(name) for name in hidden]
        for key, cursor in list(self._cursors.items()):
            if key in found:
                if cursor.missing:
                    cursor.missing, self._state = 0, None
            elif cursor.missing < 2 and not any(Path(cursor.path).is_relative_to(folder) for folder in folders):
                cursor.missing, self._state = cursor.missing + 1, None
                if cursor.missing == 2:
                    self.lost += cursor.behind
                    cursor.behind = False
                    self._cursors[key] = self._cursors.pop(key)  # the last to go stands last
        gone = [key for key, cursor in self._cursors.items() if cursor.missing == 2]
        for key in gone[:-_GONE]:
            self.pop(key)
        self.is_restless = any(cursor.copy or cursor.missing == 1 for cursor in self._cursors.values())

    def state(self) -> dict[str, Any]:
        """All of it as something JSON can hold; the same object as long as nothing has changed."""
        if self._state is None:
            self._state = save_cursors(self._cursors)
        return self._state

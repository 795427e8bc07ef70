"""How far one file has been read, and whether a file still is the one that was read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Any, Literal

from msgspec import Meta

from asd.records import Count, Flag, Text, fill

__all__ = ["UNSEEN", "Cursor", "holds_beginning", "new_cursor", "restore_cursors", "save_cursors"]

VERSION = 1
UNSEEN = (-1, -1)
_HEAD, _TAIL = 1024, 256  # bytes that are hashed, at most
_COMPARED = 1 << 18  # bytes that are compared of two files, at most


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _before(descriptor: int, offset: int, count: int) -> bytes:
    start = max(0, offset - count)
    return os.pread(descriptor, offset - start, start)


_NO_BYTES = _digest(b"")


@dataclass(slots=True)
class Cursor:
    """How far one file has been read.

    Attributes:
        path: The last name of the file.
        fingerprint: Names the file in the keys of its lines.
        head: Hash of its first line, or of the first bytes of a long one.
        head_size: How many bytes that was.
        offset: Everything before is read.
        tail: Hash of the last bytes before `offset`.
        skipping: Whether `offset` is inside a line that is too long.
        behind: Whether there was more to read.
        copy: Whether the file is the same as another so far; then the other one is read.
        missing: In how many polls it was not there, up to 2.
        seen: Its size and time of change when it was read to its end.
    """

    path: Text
    fingerprint: Text
    head: Text
    head_size: Count
    offset: Count = 0
    tail: Text = _NO_BYTES
    skipping: Flag = False
    behind: Flag = False
    copy: Flag = False
    missing: Count = 0
    seen: tuple[int, int] = UNSEEN

    def move(self, descriptor: int, offset: int) -> None:
        """Everything before `offset` of the open file is read."""
        self.offset = offset
        self.tail = _digest(_before(descriptor, offset, _TAIL))

    def fits(self, descriptor: int) -> bool:
        """Whether the open file is the one that was read, or a copy of it that holds what is not read yet."""
        return (
            os.fstat(descriptor).st_size >= self.offset
            and _digest(os.pread(descriptor, self.head_size, 0)) == self.head
            and _digest(_before(descriptor, self.offset, _TAIL)) == self.tail
        )


def new_cursor(path: str, descriptor: int) -> Cursor | None:
    """A cursor at the beginning of an open file; None as long as the file has no first line to know it by."""
    first = os.pread(descriptor, _HEAD, 0)
    end = first.find(b"\n") + 1
    if not end and len(first) < _HEAD:
        return None
    first = first[:end] if end else first
    return Cursor(path, _digest(b"%d %b" % (os.fstat(descriptor).st_ino, first)), _digest(first), len(first))


def holds_beginning(descriptor: int, other: int) -> bool:
    """Whether the first open file is no longer than the other and ends as that one reads at the same place."""
    size = os.fstat(descriptor).st_size
    return size <= os.fstat(other).st_size and _before(descriptor, size, _COMPARED) == _before(other, size, _COMPARED)


def save_cursors(cursors: Mapping[str, Cursor]) -> dict[str, Any]:
    """The cursors as something JSON can hold."""
    files = {key: dict(zip(_KEPT, _kept(cursor), strict=True)) for key, cursor in cursors.items()}
    return {"version": VERSION, "files": files}


def restore_cursors(state: Mapping[str, Any]) -> dict[str, Cursor]:
    """The cursors that `save_cursors` saved.

    Raises:
        StateError: `state` is no such thing.
    """
    saved = fill(_Saved, state, _NAME)
    cursors = {key: fill(Cursor, cursor, _NAME) for key, cursor in saved.files.items()}
    for cursor in cursors.values():
        cursor.seen = UNSEEN
    return cursors


_NAME = "state of a follower"
_KEPT = tuple(each.name for each in fields(Cursor) if each.name != "seen")
_kept = attrgetter(*_KEPT)


@dataclass
class _Saved:
    version: Annotated[Literal[1], Meta(description=str(VERSION))]
    files: Annotated[dict[str, Any], Meta(description="an object of files")]

"""Position up to which the lines of one file have been read."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from asd.records import Count, Flag, Text, fill

VERSION = 1
UNSEEN = (-1, -1)
_HEAD = 1024  # bytes that are hashed, at most
_BLOCK = 1 << 18
_AT_ONCE = 1 << 22  # bytes of one batch: bounds the memory it takes
_TURN_LINES, _TURN_BYTES = 100, 1 << 18


class Line(NamedTuple):
    """One complete line."""

    path: Path  # the file, by its name when it was read
    offset: int  # where in the file the line begins, in bytes
    text: str  # the line without its end; bytes that are no UTF-8 are replaced
    key: str  # the same for the same line however often it is read, also after its file was renamed


@dataclass(slots=True)
class Cursor:
    """Cursor in one file."""

    path: Text  # the last name of the file
    fingerprint: Text  # names the file in the keys of its lines
    head: Text  # hash of its first line, or of the first bytes of a long one
    head_size: Count  # number of bytes in `head`
    offset: Count = 0  # position up to which the file has been read
    skipping: Flag = False  # whether `offset` is inside a line that is too long
    behind: Flag = False  # whether there was more to read
    missing: Count = 0  # 1 when the file has disappeared
    tail: Text = ""  # hash of the last bytes before `offset`
    seen: tuple[int, int] = UNSEEN  # size and time of change when the file was read to its end

    def fits(self, descriptor: int) -> bool:
        """Returns whether the open file is the one that was read, and was not rewritten since.

        The number of a deleted file may be given to a new one, and files of a state often begin with the same line.
        """
        return (
            os.fstat(descriptor).st_size >= self.offset
            and _digest(os.pread(descriptor, self.head_size, 0)) == self.head
            and self.tail in ("", self.tail_of(descriptor))
        )

    def tail_of(self, descriptor: int) -> str:
        """Returns the value of `tail` in the open file."""
        size = min(self.offset, _HEAD)
        return _digest(os.pread(descriptor, size, self.offset - size))


def new_cursor(path: str, descriptor: int, before: str = "") -> Cursor | None:
    """Returns a cursor at the beginning of an open file; None as long as the file has no first line to know it by.

    `before` is the `tail` of what was in the file before it was written anew: its lines are others then.
    """
    first = os.pread(descriptor, _HEAD, 0)
    end = first.find(b"\n") + 1
    if not end and len(first) < _HEAD:
        return None
    first = first[:end] if end else first
    return Cursor(path, fingerprint_of(descriptor, first, before), _digest(first), len(first))


def fingerprint_of(descriptor: int, first: bytes, before: str = "") -> str:
    """Names an open file in the keys of its lines, by its first line, which need not have its end yet."""
    return _digest(b"%d %b%b" % (os.fstat(descriptor).st_ino, first.rstrip(b"\r\n\0"), before.encode()))


def save_cursors(cursors: Mapping[str, Cursor]) -> dict[str, Any]:
    """Returns the cursors as something JSON can hold."""
    files = {key: {name: getattr(cursor, name) for name in _KEPT} for key, cursor in cursors.items()}
    return {"version": VERSION, "files": files}


def restore_cursors(state: Mapping[str, Any]) -> dict[str, Cursor]:
    """Returns the cursors that `save_cursors` saved; raises StateError if `state` is no such thing."""
    saved = fill(_Saved, state, _NAME)
    cursors = {key: fill(Cursor, cursor, _NAME) for key, cursor in saved.files.items()}
    for cursor in cursors.values():
        cursor.seen = UNSEEN
    return cursors


class LineBatch:
    """The lines of one poll, and when it is enough.

    Args:
        limit: So many lines are enough.
        longest: Longer lines are passed over, in bytes.
    """

    def __init__(self, limit: int, longest: int) -> None:
        self.lines: list[Line] = []  # those that were read
        self.skipped = 0  # lines passed over because they were too long
        self._bytes = 0
        self._limit = limit
        self._longest = longest
        self.begin_turn()

    def begin_turn(self) -> None:
        """Lets the next log have as much as each."""
        self._turn_lines = min(len(self.lines) + _TURN_LINES, self._limit)
        self._turn_bytes = min(self._bytes + _TURN_BYTES, _AT_ONCE)

    @property
    def full(self) -> bool:
        """True where no more lines may be added."""
        return len(self.lines) >= self._limit or self._bytes >= _AT_ONCE

    @property
    def turn_is_over(self) -> bool:
        """Returns true when it is another log's turn."""
        return len(self.lines) >= self._turn_lines or self._bytes >= self._turn_bytes

    def read(self, cursor: Cursor, descriptor: int, path: Path) -> None:
        """Adds the complete lines from the cursor on, and moves it behind them."""
        rest = b""  # what was read of a line that is not complete
        cursor.behind = True
        while not self.turn_is_over:
            block = os.pread(descriptor, _BLOCK, cursor.offset + len(rest))
            if not block:
                cursor.behind = False
                return
            *complete, rest = (rest + block).split(b"\n")
            for raw in complete:
                if len(self.lines) >= self._turn_lines:
                    return
                self._add(cursor, path, raw)
                cursor.offset += len(raw) + 1
            if cursor.skipping or len(rest) > self._longest:
                self._bytes += len(rest)
                cursor.offset += len(rest)
                cursor.skipping, rest = True, b""

    def _add(self, cursor: Cursor, path: Path, raw: bytes) -> None:
        self._bytes += len(raw)
        if cursor.skipping or len(raw) > self._longest:
            cursor.skipping = False
            self.skipped += 1
            return
        text = raw.removesuffix(b"\r")
        if text:
            key = f"{cursor.fingerprint}:{cursor.offset}"
            self.lines.append(Line(path, cursor.offset, text.decode(errors="replace"), key))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


_NAME = "state of a follower"
_KEPT = tuple(each.name for each in fields(Cursor) if each.name != "seen")


@dataclass
class _Saved:
    version: Annotated[Literal[1], Meta(description=str(VERSION))]
    files: Annotated[dict[str, Any], Meta(description="an object of files")]

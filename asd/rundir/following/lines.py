"""Takes the complete lines out of what is new in one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from asd.rundir.following.cursor import Cursor

__all__ = ["Batch", "Line"]

_BLOCK = 1 << 18
_RETURN = ord("\r")
_AT_ONCE = 1 << 24  # bytes of one batch: bounds the memory it takes


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


class Batch:
    """The lines of one poll, and when it is enough.

    Args:
        limit: So many lines are enough.
        longest: Longer lines are passed over, in bytes.

    Attributes:
        lines: As above.
        skipped: Lines passed over because they were too long.
    """

    def __init__(self, limit: int, longest: int) -> None:
        self.lines: list[Line] = []
        self.skipped = 0
        self._bytes = 0
        self._limit = limit
        self._longest = longest

    @property
    def full(self) -> bool:
        """Whether it is enough."""
        return len(self.lines) >= self._limit or self._bytes >= _AT_ONCE

    def read(self, cursor: Cursor, descriptor: int, path: Path) -> None:
        """Adds the complete lines from the cursor on, and moves it behind them."""
        place = offset = cursor.offset
        rest = b""  # of the file from `place` on
        cursor.behind = True
        while not self.full:
            block = os.pread(descriptor, _BLOCK, place + len(rest))
            if not block:
                cursor.behind = False
                break
            *complete, rest = (rest + block).split(b"\n")
            for raw in complete:
                if len(self.lines) >= self._limit:
                    rest = b""  # this poll goes no further
                    break
                if raw and raw[0] and raw[-1] != _RETURN and len(raw) <= self._longest and not cursor.skipping:
                    self._bytes += len(raw)
                    self.lines.append(Line(path, place, raw.decode(errors="replace"), f"{cursor.fingerprint}:{place}"))
                else:
                    self._take(cursor, path, place, raw)
                place += len(raw) + 1
            offset = place
            text = rest.lstrip(b"\0")
            if cursor.skipping or len(text) > self._longest:
                self._bytes += len(rest)
                place = offset = place + len(rest)
                cursor.skipping, rest = True, b""
            else:
                place, rest = place + len(rest) - len(text), text
        if offset != cursor.offset:
            cursor.move(descriptor, offset)

    def _take(self, cursor: Cursor, path: Path, place: int, raw: bytes) -> None:
        """Adds what is left of a line that is not plain."""
        text = raw.lstrip(b"\0")
        self._bytes += len(text)
        if cursor.skipping or len(text) > self._longest:
            cursor.skipping = False
            self.skipped += 1
            return
        place += len(raw) - len(text)
        text = text.removesuffix(b"\r")
        if text:
            self.lines.append(Line(path, place, text.decode(errors="replace"), f"{cursor.fingerprint}:{place}"))

"""The last line of a file that has no end yet: in a log that is finished it may be all there will ever be."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asd.rundir.follow import Line

__all__ = ["LogTails", "unfinished"]

_LONGEST = 1 << 20
_KEPT = 1000


def unfinished(paths: Iterable[Path], cursors: Mapping[str, Mapping[str, Any]]) -> list[Line]:
    """What stands behind the last line end of each file.

    Args:
        paths: The files.
        cursors: How far each was read, as in the state of a `Follower`.
    """
    found: dict[str, Line] = {}
    for path in paths:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                name = f"{status.st_dev}:{status.st_ino}"
                cursor = cursors.get(name, {})
                offset = cursor.get("offset", 0)
                if not stat.S_ISREG(status.st_mode) or cursor.get("skipping"):
                    continue
                if name in found or not 0 < status.st_size - offset <= _LONGEST:
                    continue
                file.seek(offset)
                raw = file.read(_LONGEST)
        except OSError:
            continue  # the follower has said so
        if b"\n" not in raw and raw.strip(b"\r "):
            text = raw.decode(errors="replace").strip("\r")
            found[name] = Line(path, offset, text, f"{cursor.get('fingerprint', name)}:{offset}")
    return list(found.values())


class LogTails:
    """Remembers which unfinished lines were taken, so that they are not taken again when they get their end."""

    def __init__(self, state: Iterable[Any] = ()) -> None:
        self._taken = {tuple(item) for item in state if isinstance(item, (list, tuple)) and len(item) == 3}

    def add(self, line: Line) -> None:
        """Remembers that `line` was taken."""
        self._taken.add((line.offset, len(line.text), _digest(line.text)))
        while len(self._taken) > _KEPT:
            self._taken.pop()

    def has(self, line: Line) -> bool:
        """Whether the beginning of `line` was taken."""
        return any(
            line.offset == offset and len(line.text) >= length and _digest(line.text[:length]) == digest
            for offset, length, digest in self._taken
        )

    def state(self) -> list[list[Any]]:
        """For the constructor, as something JSON can hold."""
        return sorted(list(item) for item in self._taken)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

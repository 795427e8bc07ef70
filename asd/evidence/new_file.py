"""A result file that appears whole, and never in place of one that is there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

__all__ = ["free_timestamp", "new_file"]


def free_timestamp(folder: Path, patterns: Iterable[str], now: datetime) -> str:
    """The first second from `now` on, as `YYYYmmddHHMMSS`, of which the folder has no file yet.

    Args:
        folder: Where the files will lie.
        patterns: Their names with `{}` in place of the timestamp.
        now: The time.
    """
    names = list(patterns)
    while True:
        stamp = now.strftime("%Y%m%d%H%M%S")
        if not any(os.path.lexists(folder / name.format(stamp)) for name in names):
            return stamp
        now += timedelta(seconds=1)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; it stands at `path` when the block ends well, and not at all otherwise.

    Raises:
        FileExistsError: Something is at `path`, and stays as it is.
        OSError: The folder can't be written or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link never takes the place of a file.
        os.link(name, path)
    finally:
        with suppress(FileNotFoundError):
            name.unlink()

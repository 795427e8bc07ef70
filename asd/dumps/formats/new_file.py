"""A result file that appears whole, and never in place of one that is there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

from asd.errors import ConfigError
from asd.rundir.disk import whole_file


def check_writable(folder: Path) -> None:
    """Checks that a dump can be written below `folder`, which need not be there.

    Raises:
        ConfigError: It can't.
    """
    above = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not above.is_dir():
        raise ConfigError("dump_path", str(folder), f"{above} is no folder; valid is one that this user can write")
    try:  # rights do not say it all: root has them in /proc too
        os.rmdir(tempfile.mkdtemp(prefix=".asd-", dir=above))
    except OSError as error:
        raise ConfigError("dump_path", str(folder), f"this user can't write in {above} ({error.strerror})") from error


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


def move_aside(folder: Path) -> Path | None:
    """Renames what an earlier run left in a folder to `<name>.earlier<k>` and returns that; None: it left nothing.

    Raises:
        OSError: It can't be renamed.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    number = 1
    while (aside := folder.with_name(f"{folder.name}.earlier{number}")).exists():
        number += 1
    return folder.rename(aside)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; it stands at `path` when the block ends well, and not at all otherwise.

    Raises:
        FileExistsError: Something is at `path`, and stays as it is.
        OSError: The folder can't be written or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, replace=False) as file:
        yield file

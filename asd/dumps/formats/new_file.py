"""Result files that appear whole, and never replace an existing file."""

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

from asd.errors import ConfigError
from asd.rundir.disk import whole_file

_LOG = logging.getLogger("asd")


def check_writable(folder: Path, name: str = "dump_path") -> None:
    """Checks that files can be written below `folder`, which need not exist; `name` is that of the setting."""
    above = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not above.is_dir():
        raise ConfigError(name, str(folder), f"{above} is not a folder; pass one that this user can write")
    try:  # permissions are not enough: root has them in /proc too
        os.rmdir(tempfile.mkdtemp(prefix=".asd-", dir=above))
    except OSError as error:
        raise ConfigError(name, str(folder), f"this user can't write in {above} ({error.strerror})") from error


def free_timestamp(folder: Path, patterns: Iterable[str], now: datetime) -> str:
    """Returns the first second from `now` on, as `YYYYmmddHHMMSS`, for which the folder has no file.

    Args:
        folder: Folder of the files.
        patterns: Names of the files, with `{}` in place of the timestamp.
        now: The time.
    """
    names = list(patterns)
    while True:
        stamp = now.strftime("%Y%m%d%H%M%S")
        if not any(os.path.lexists(folder / name.format(stamp)) for name in names):
            return stamp
        now += timedelta(seconds=1)


def move_aside(folder: Path) -> None:
    """Renames a folder with files of an earlier run to `<name>.earlier<k>`, with a warning."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.earlier{number}")).exists():
        number += 1
    folder.rename(aside)
    _LOG.warning("%s had files of an earlier run or record of this step, which are now in %s.", folder, aside)


def cell_text(text: str) -> str:
    """Returns a cell of a table: with a quote before a text that a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Yields a file to write; it appears at `path` when the block ends without an error, else not at all.

    A file that is there already is left unchanged: FileExistsError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, replace=False) as file:
        yield file

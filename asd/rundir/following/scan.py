"""Finds which files there are, by what they are and not by their names."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["Scan", "key_of", "open_to_read", "reason_of"]

_NO_FILE = "no regular file"


class Scan:
    """What there is now.

    Args:
        files: Lists the files.
        links: Whether symbolic links are followed.

    Attributes:
        found: By key, in the order of `files`; a file of several names counts once.
        keys: The key of each path.
        unreadable: What can't be read, with the reason.
    """

    def __init__(self, files: Callable[[], Iterable[Path]] = tuple, *, links: bool = True) -> None:
        self._links = links
        self.found: dict[str, tuple[Path, os.stat_result]] = {}
        self.keys: dict[Path, str] = {}
        self.unreadable: dict[str, str] = {}
        try:
            paths = list(files())
        except OSError as error:
            self.unreadable[str(error.filename or ".")] = reason_of(error)
            return
        for path in paths:
            try:
                status = os.stat(path, follow_symlinks=links)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.unreadable[str(path)] = reason_of(error)
                continue
            if stat.S_ISREG(status.st_mode):
                self.keys[path] = key = key_of(status)
                self.found.setdefault(key, (path, status))
            else:
                is_link = stat.S_ISLNK(status.st_mode)
                self.unreadable[str(path)] = (
                    f"It is {'a symbolic link, which is not followed' if is_link else _NO_FILE}"
                )

    def look_again(self, path: Path) -> str | None:
        """The key of a file that was found and has changed since; None when its name is another file's by now."""
        key = self.keys[path]
        try:
            status = os.stat(path, follow_symlinks=self._links)
        except OSError:
            return None
        if key != key_of(status):
            return None
        self.found[key] = path, status
        return key


def key_of(status: os.stat_result) -> str:
    """What tells a file from others, whatever its name."""
    return f"{status.st_dev}:{status.st_ino}"


def open_to_read(path: Path, *, links: bool = True) -> int:
    """A descriptor; a pipe in the place of a file keeps nobody waiting."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))


def reason_of(error: OSError) -> str:
    """Why, for sentences."""
    return error.strerror or str(error)

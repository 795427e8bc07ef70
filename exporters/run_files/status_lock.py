"""A lock that keeps two processes from writing the status of the same rank into one run folder."""

from __future__ import annotations

import os
from pathlib import Path

from asd.rundir.disk import HeldError, take_lock

__all__ = ["StatusLock"]

_held: dict[tuple[int, Path], list[int]] = {}
"""By process and file: the descriptor, and how many of this process hold it; to close it twice would end the lock."""


class StatusLock:
    """A lock that ends with the process, however it ends, and that the workers it forks do not keep.

    Args:
        status_file: What is locked; the lock itself is a hidden file beside it.
    """

    def __init__(self, status_file: Path) -> None:
        self._path = status_file.with_name(f".{status_file.name}.lock")
        self._key: tuple[int, Path] | None = None

    def take(self, owner: str) -> str:
        """Takes the lock, unless it is held already or can't be had: no folder, a read-only one, no locks on it.

        Args:
            owner: Who this is, for others who want it.

        Returns:
            Who holds it, if it is another process; else nothing.
        """
        if self._key is not None:
            return ""
        key = os.getpid(), self._path.absolute()
        if key in _held:
            _held[key][1] += 1
            self._key = key
            return ""
        try:
            descriptor = take_lock(self._path, owner, by_process=True)
        except HeldError as error:
            return error.owner
        except OSError:
            return ""
        _held[key] = [descriptor, 1]
        self._key = key
        return ""

    def release(self) -> None:
        """Gives the lock back, if it is held."""
        key, self._key = self._key, None
        if key is None or key not in _held:
            return
        _held[key][1] -= 1
        if _held[key][1] == 0:
            os.close(_held.pop(key)[0])

"""Gathers what happened in watched folders, as far as it is about files that count."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from asd.rundir.following.inotify import Inotify
from asd.rundir.following.local_disk import is_local

__all__ = ["FolderWatch", "News"]


class News(NamedTuple):
    """What happened since it was asked for last.

    Attributes:
        names: Whether files that count, or folders, came or went, or a folder is watched no longer.
        written: Files that count and were written.
    """

    names: bool
    written: set[Path]


class FolderWatch:
    """Watches folders on local disks; elsewhere it says that it can't.

    Args:
        counts: Whether a file counts, by its folder and its name.
        local: Whether the file system of an `st_dev` is written by this machine only.
    """

    def __init__(self, counts: Callable[[Path, str], bool], local: Callable[[int], bool] = is_local) -> None:
        self._counts = counts
        self._local = local
        self._folders: dict[int, Path] = {}
        self._watches: dict[Path, int] = {}
        self._is_local: dict[int, bool] = {}
        try:
            self._inotify: Inotify | None = Inotify()
        except OSError:
            self._inotify = None

    def add(self, folder: Path) -> bool:
        """Whether `folder` is watched from now on, or was already."""
        if folder in self._watches:
            return True
        if self._inotify is None:
            return False
        try:
            device = os.stat(folder).st_dev
            if device not in self._is_local:
                self._is_local[device] = self._local(device)
            if not self._is_local[device]:
                return False
            watch = self._inotify.add(folder)
        except OSError:
            return False
        if watch in self._folders:  # the same folder has another name, too
            return False
        self._folders[watch], self._watches[folder] = folder, watch
        return True

    def forget_all(self) -> None:
        """Ends every watch."""
        if self._inotify is not None:
            for watch in self._folders:
                self._inotify.remove(watch)
        self._folders.clear()
        self._watches.clear()

    def news(self) -> News:
        """What happened since the last time."""
        names, written = False, set()
        for notice in self._inotify.read() if self._inotify is not None else ():
            folder = self._folders.get(notice.watch)
            if notice.watch < 0:
                names = True
            elif folder is None:
                continue  # a watch that has ended
            elif not notice.name:
                self.forget_all()  # it was moved, and the folders in it with it, or is gone
                names = True
            elif notice.is_folder:
                names = names or (notice.came_or_went and notice.name[0] != ".")
            elif self._counts(folder, notice.name):
                written.add(folder / notice.name)
                names = names or notice.came_or_went
        return News(names, written)

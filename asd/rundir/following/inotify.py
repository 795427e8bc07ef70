"""Linux's inotify: which names in a folder were made, written or taken away.

Through the C library that is loaded anyway. The packages that do the same bring a thread for each watch, or a wheel for
each platform, and this needs three calls.
"""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Inotify", "Notice"]

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLY_FOLDERS, _IS_FOLDER = 0x1000000, 0x40000000
_CAME_OR_WENT = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ATTRIB
_MASK = _MODIFY | _CAME_OR_WENT | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS
_LOST = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_HEAD = struct.Struct("iIII")
_AT_ONCE = 1 << 16


class Notice(NamedTuple):
    """One thing that happened.

    Attributes:
        watch: The number that `Inotify.add` returned; -1 when notices were lost and anything may have happened.
        name: In the watched folder; empty when it is about the folder itself, which is no longer watched then.
        is_folder: Whether `name` is a folder.
        came_or_went: Whether the name was made, taken away, moved or given to somebody; else what it names was written.
    """

    watch: int
    name: str
    is_folder: bool
    came_or_went: bool


class Inotify:
    """Watches folders until it is forgotten.

    Raises:
        OSError: This is no Linux, or this user has too many of them.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(None, use_errno=True)
            self._descriptor: int = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError as error:
            raise OSError("this system has no inotify") from error
        if self._descriptor < 0:
            raise _failed()
        weakref.finalize(self, os.close, self._descriptor)

    def add(self, folder: str | os.PathLike[str]) -> int:
        """Begins to watch `folder`; the number by which its notices are known.

        Raises:
            OSError: It is no folder, may not be read, or there are too many watches.
        """
        number: int = self._library.inotify_add_watch(self._descriptor, os.fsencode(folder), _MASK)
        if number < 0:
            raise _failed()
        return number

    def remove(self, watch: int) -> None:
        """Ends a watch; one that has ended is no harm."""
        self._library.inotify_rm_watch(self._descriptor, watch)

    def read(self) -> Iterator[Notice]:
        """What happened since the last time; never waits."""
        while True:
            try:
                data = os.read(self._descriptor, _AT_ONCE)
            except BlockingIOError:
                return
            place = 0
            while place < len(data):
                watch, mask, _, length = _HEAD.unpack_from(data, place)
                place += _HEAD.size
                name = os.fsdecode(data[place : place + length].rstrip(b"\0"))
                place += length
                if mask & _OVERFLOW:
                    watch = -1
                elif mask & _LOST:
                    name = ""
                yield Notice(watch, name, bool(mask & _IS_FOLDER), bool(mask & _CAME_OR_WENT))


def _failed() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))

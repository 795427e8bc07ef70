"""Files that are whole or not there, and locks: what a kill or a power cut must not spoil.

A file is written beside its place, synced, and renamed, so a reader sees the old content or the new and never half of
either. A lock is a file that is held open: it ends with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-4, 1e-2  # seconds


class HeldError(Exception):
    """Another process holds the lock.

    Attributes:
        owner: What that one wrote about itself; `another` if nothing.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(owner)


def write_whole(path: Path, content: str | bytes, *, flush: bool = True) -> None:
    """Writes `content`, a text as UTF-8, to `path` so that the file is never seen half written.

    Args:
        path: Where; its folder is made.
        content: All of the file.
        flush: As in `whole_file`.

    Raises:
        OSError: The disk is full or the folder can't be written; what was at `path` before is still there. It names
            `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, flush=flush) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def whole_file(path: Path, *, replace: bool = True, flush: bool = True) -> Iterator[IO[bytes]]:
    """A file to write; it stands at `path` when the block ends well, and not at all otherwise.

    Args:
        path: Where, in a folder that is there.
        replace: Whether it may take the place of a file.
        flush: Wait until it is on the disk. Without, a power failure may leave an empty file; a killed process may not.

    Raises:
        FileExistsError: Something is at `path`, and stays as it is; without `replace`.
        OSError: The disk is full or the folder can't be written. It names `path`.
    """
    # Not tempfile: its files are for one user alone, whatever the umask says.
    beside = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            if flush:
                os.fsync(handle)
        # Unlike a rename, a link never takes the place of a file.
        (os.replace if replace else os.link)(beside, path)
    except OSError as error:
        if error.errno and error.filename in (None, beside, str(beside)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    if flush:
        sync(path.parent)


def open_own(path: Path | str, flags: int, mode: int = 0o644) -> int:
    """Opens a file that is to be changed: a regular one, and never what a symbolic link leads to.

    Whoever may write into the folder could else have any file of this user cut or written to. A pipe or a device keeps
    nobody waiting.

    Args:
        path: The file; links before its last part are followed.
        flags: Of `os.open`.
        mode: Of a file that is made.

    Raises:
        OSError: It can't be opened, or is something else. It names `path`.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and Path(path).is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", str(path)) from None
        raise
    return _regular(descriptor, path)


def open_to_read(path: Path, *, links: bool = True) -> int:
    """A descriptor to read from; a pipe in the place of a file keeps nobody waiting.

    Raises:
        OSError: It can't be opened, or is a symbolic link and these are not followed.
    """
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))


def read_regular(path: Path, *, links: bool = True) -> bytes:
    """All of a regular file; a pipe or a device keeps nobody waiting.

    Args:
        path: The file.
        links: Whether a symbolic link is followed.

    Raises:
        OSError: It can't be read, or is something else. It names `path`.
    """
    descriptor = open_to_read(path) if links else open_own(path, os.O_RDONLY)
    with open(_regular(descriptor, path), "rb") as file:
        return file.read()


def _regular(descriptor: int, path: Path | str) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return descriptor


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk.

    Raises:
        OSError: It can't be opened, or the disk failed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take_lock(path: Path, owner: str = "", *, mode: int = 0o644, by_process: bool = False) -> int:
    """Takes the lock that the file `path` is; closing the descriptor that it returns gives it back.

    Args:
        path: It is made if it is not there, and opened as `open_own` does.
        owner: Who this is, for others who want it.
        mode: Of the file.
        by_process: As in `lock`.

    Raises:
        HeldError: Another process has it.
        OSError: The file can't be opened, or its file system knows no locks.
    """
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT, mode)
    held = False
    try:
        held = lock(descriptor, by_process=by_process)
        other = "" if held else os.pread(descriptor, 1024, 0).decode(errors="replace").strip()
    finally:
        if not held:
            os.close(descriptor)
    if not held:
        raise HeldError(other or "another")
    with contextlib.suppress(OSError):  # on a full disk nobody learns who holds it
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)
    return descriptor


def lock(descriptor: int, patience: float = 0.0, *, by_process: bool = False) -> bool:
    """Locks an open file or folder; False when another has held it all the time.

    Args:
        descriptor: Of the file.
        patience: How long to wait for it, in seconds.
        by_process: Whether the lock is this process's alone, not its forked children's; then to close any descriptor
            of the file ends it.

    Raises:
        OSError: Its file system knows no locks.
    """
    take = fcntl.lockf if by_process else fcntl.flock
    end, pause = time.monotonic() + patience, _SHORTEST_PAUSE
    while True:
        try:
            take(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= end:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return True

"""Files that are whole or missing, and locks: safe against kills and power cuts.

A file is written under another name, synced, and renamed, so that a reader sees the old content or the new and never
half of either. A lock is a file that is held open: it ends with the process, however that ends.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from asd.regular_file import open_regular

_SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-4, 1e-2  # seconds
_NO_SYNC = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class HeldError(Exception):
    """Raised when another process holds the lock."""

    def __init__(self, owner: str) -> None:
        self.owner = owner  # text that the holder wrote about itself; `another` if none
        super().__init__(owner)


def write_whole(path: Path, content: str | bytes, *, flush: bool = True) -> None:
    """Writes `content`, a text as UTF-8, to `path`, so that no reader sees a half-written file.

    Its folder is made; `flush` is that of `whole_file`.

    Its error names `path`, and leaves the earlier file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, flush=flush) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def whole_file(path: Path, *, replace: bool = True, flush: bool = True) -> Iterator[IO[bytes]]:
    """Yields a file to write; it appears at `path` when the block ends without an error, else not at all.

    Args:
        path: Path in an existing folder.
        replace: Whether it may replace a file.
        flush: Wait until it is on the disk. Without it, a power failure may leave an empty file, but a killed process
            does not.

    An OSError names `path`; without `replace` a FileExistsError leaves it unchanged.
    """
    # Not tempfile: its files belong to one user alone, whatever the umask.
    beside = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            if flush:
                os.fsync(handle)
        # Unlike a rename, a link never replaces a file.
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


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk; for a folder only where that is possible."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC or not path.is_dir():
            raise


def take_lock(path: Path, owner: str = "", *, mode: int = 0o644, by_process: bool = False) -> int:
    """Takes the lock in the file `path`; closing the returned descriptor releases it.

    The file is made if it does not exist, and opened by `open_regular`. `owner` tells others who has it;
    `by_process` is that of `lock`.
    """
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, mode)
    held = False
    try:
        held = lock(descriptor, by_process=by_process)
        other = "" if held else os.pread(descriptor, 1024, 0).decode(errors="replace").strip()
    finally:
        if not held:
            os.close(descriptor)
    if not held:
        raise HeldError(other or "another")
    with contextlib.suppress(OSError):  # on a full disk the owner is not recorded
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)
    return descriptor


def lock(descriptor: int, patience: float = 0.0, *, by_process: bool = False) -> bool:
    """Locks an open file or folder; returns False if another process held it until the patience ended.

    With `by_process` the lock belongs to this process alone, not to its forked children; then closing any descriptor of
    the file releases it.

    A file system without locks is an OSError.
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

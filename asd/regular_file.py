"""Opens and reads files that anybody may have put there: regular ones alone, so that no pipe and no device blocks."""

import errno
import math
import os
import stat
from pathlib import Path


def open_regular(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o644, *, links: bool = False) -> int:
    """Opens a regular file, and without `links` never through a symbolic link; an OSError names `path`.

    Otherwise anybody who may write into a folder could have other files of this user read or overwritten. Links before
    its last part are followed. `flags` are those of `os.open`, `mode` is that of a new file.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW), mode)
    except OSError as error:
        if error.errno == errno.ELOOP and not links and Path(path).is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return descriptor


def read_regular(path: Path | str, most: float = math.inf, *, links: bool = False) -> bytes:
    """Returns the content of a file, opened by `open_regular`; raises OSError also if it has more than `most` bytes."""
    with open(open_regular(path, links=links), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes; the limit is {most}", str(path))
        return file.read()

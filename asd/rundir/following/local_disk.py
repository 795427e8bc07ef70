"""Whether all who write to a folder do so through this kernel."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_local"]

_LOCAL = frozenset({
    "bcachefs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs",
})  # fmt: skip
"""File systems that one machine has to itself. Of what another machine writes, as on NFS or Lustre, or a program beside
the kernel, as with FUSE, inotify says nothing; a file system that is not known here is taken for such a one."""
_MOUNTS = Path("/proc/self/mountinfo")


def is_local(device: int, mounts: Path = _MOUNTS) -> bool:
    """Whether the file system is one that only this machine writes.

    Args:
        device: `st_dev` of a file or folder on it.
        mounts: What is mounted, as the kernel lists it.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    kinds = {_kind(words) for words in map(str.split, lines) if len(words) > 2 and words[2] == number}
    return bool(kinds) and kinds <= _LOCAL


def _kind(words: list[str]) -> str:
    """The word behind the dash; how many stand before it differs."""
    rest = words[words.index("-") + 1 :] if "-" in words else []
    return rest[0] if rest else ""

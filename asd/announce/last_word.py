"""What a process still says when a signal ends it: that its training has ended, in its status file.

MindSpore makes a SIGTERM of Ctrl-C, and Python runs its own handlers of signals only when a computation is over, which
may be never. So native code does it, where there is any: `asd.operators` sets `hook`, and who writes the file tells it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

__all__ = ["ENDED", "RUNS", "hook", "keep"]

RUNS, ENDED = b"true ", b"false"
"""What is there as long as a training runs, and what takes its place."""
hook: Callable[[bytes, int], object] | None = None
"""Gets a file and the place in it where `RUNS` is; a negative one for no file."""


def keep(file: Path | None, place: int = -1) -> None:
    """Says where to write when a signal ends this process; nowhere without a file."""
    if hook is not None:
        hook(bytes(file.absolute()) if file is not None else b"", place)

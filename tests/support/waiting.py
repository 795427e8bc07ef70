"""Other processes and threads: which there are, and waiting for them."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 180.0) -> T:
    """The first true result of `condition`; fails after a time that no busy machine takes."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def processes_with(mark: str) -> dict[int, list[str]]:
    """The words of each other process that lives and has `mark` in its environment."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # no process, or it has just ended
            if int(entry.name) != os.getpid() and mark.encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_text().split("\0")[:-1]
    return found

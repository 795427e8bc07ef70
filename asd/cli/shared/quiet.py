"""Keeps the chatter of MindSpore and mindformers away from a command that tells a story."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn

__all__ = ["quiet"]


def quiet(out: Path, *, is_temporary: bool = False) -> None:
    """Keeps MindSpore and mindformers from burying the story in chatter; call it before they are imported.

    mindformers also writes a log folder into the working directory; `out` is where it goes instead. And an interrupt
    ends the process at once: a KeyboardInterrupt inside MindSpore's C++ aborts it, and while a graph runs MindSpore has
    a handler of its own, which sends SIGTERM. A temporary `out` is removed then.
    """
    os.environ.setdefault("GLOG_v", "3")
    os.environ.setdefault("LOCAL_DEFAULT_PATH", str(out / "mindformers"))

    def leave(*_: object) -> NoReturn:
        os.write(sys.stderr.fileno(), b"\nasd: interrupted.\n" if sys.stderr.isatty() else b"asd: interrupted.\n")
        if is_temporary:
            shutil.rmtree(out, ignore_errors=True)
        os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)

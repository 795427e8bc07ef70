"""Keeps the chatter of MindSpore away from a command that tells a story."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

__all__ = ["quiet"]


def quiet() -> None:
    """Keeps MindSpore from burying the story in chatter; call it before it is imported.

    And an interrupt ends the process at once: a KeyboardInterrupt inside MindSpore's C++ aborts it, and while a graph
    runs MindSpore has a handler of its own, which sends SIGTERM.
    """
    os.environ.setdefault("GLOG_v", "3")

    def leave(*_: object) -> NoReturn:
        os.write(sys.stderr.fileno(), b"\nasd: interrupted.\n" if sys.stderr.isatty() else b"asd: interrupted.\n")
        os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)

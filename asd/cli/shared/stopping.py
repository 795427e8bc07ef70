"""Ends a command by a signal: one that follows something, or one inside MindSpore."""

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn


@contextlib.contextmanager
def stopped(then: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """Yields an event that SIGTERM sets, followed by a call of `then`; only in the main thread."""
    stop = threading.Event()

    def ask() -> None:
        stop.set()
        then()

    def handle(_number: int, _frame: FrameType | None) -> None:
        # The main thread may hold the event's lock just now, in `wait`, and would wait for itself for ever.
        _thread.start_new_thread(ask, ())

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def quiet() -> None:
    """Silences MindSpore's log; must be called before MindSpore is imported.

    An interrupt then ends the process at once: a KeyboardInterrupt inside MindSpore's C++ aborts it, and MindSpore's
    own handler while a graph runs sends SIGTERM.
    """
    os.environ.setdefault("GLOG_v", "3")

    def leave(*_: object) -> NoReturn:
        os.write(sys.stderr.fileno(), b"\nasd: interrupted.\n" if sys.stderr.isatty() else b"asd: interrupted.\n")
        os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)

"""How a command that follows something is told to end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["stopped"]


@contextlib.contextmanager
def stopped(then: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """An event that SIGTERM sets; `then` is called after it. In another thread than the first nothing sets it."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        then()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)

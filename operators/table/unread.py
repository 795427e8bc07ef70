"""Who is told that updates are made and nobody reads what was checked, which is how a forgotten `step` shows."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import NamedTuple, Protocol

__all__ = ["Listener", "Unread", "listen", "tell"]


class Unread(NamedTuple):
    """What happened since the slots were read last.

    Attributes:
        updates: Updates that the gate judged, as far as the host knows without waiting for a graph.
        overrun: Whether an update was refused, and the step after it was made as if nothing had happened.
    """

    updates: int
    overrun: bool


class Listener(Protocol):
    """Is told."""

    def look(self, *, ended: bool = False) -> None:
        """Finds out what was not read; `ended` when nobody will."""


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()


def listen(listener: Listener) -> None:
    """Tells `listener` from now on as long as it lives, and when the process ends."""
    if not _listeners:
        atexit.unregister(_tell_at_exit)
        atexit.register(_tell_at_exit)  # behind those of MindSpore and of what the listener writes to, so before them
    _listeners.add(listener)


def tell(*, ended: bool = False) -> None:
    """Tells all listeners."""
    for listener in list(_listeners):
        listener.look(ended=ended)


def _tell_at_exit() -> None:
    with contextlib.suppress(Exception):  # whatever it is, the process ends
        tell(ended=True)

"""The one boundary between MindSpore and us: an exception of ours is a problem, and ends no training."""

import atexit
import functools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast

import mindspore as ms
from mindspore.common import api

from asd.errors import AnomalyDetected, ConfigError, RankLostError

_LOG = logging.getLogger("asd")
_MEANT = (AnomalyDetected, ConfigError, RankLostError)
"""Exceptions that are raised on purpose: an anomaly that ends a training, a wrong setting, a rank that died."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Listener(Protocol):
    def once(self, reason: str) -> bool:
        """Reports a problem, once."""


_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
_logged: set[str] = set()


def listen(listener: _Listener) -> None:
    """Has `listener` report problems from now on, as long as it lives."""
    _listeners.add(listener)


def at_exit(method: Callable[[], object]) -> None:
    """Calls a method when the process ends, unless its object is gone."""
    known = weakref.WeakMethod(method)

    def end() -> None:
        if (living := known()) is not None:
            living()

    atexit.register(end)


def shielded(function: _Function) -> _Function:
    """Wraps `function`, which MindSpore or a training calls; the wrapper returns None where it fails."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with own_work():
                return function(*args, **kwargs)
        except _MEANT:
            raise
        except Exception as error:  # whatever it is: a detector's own failure must not end a training
            report(f"{function.__name__} failed, and its check is off: {error!r}")
            return None

    return cast("_Function", call)


def wait_for_pynative() -> None:
    """Waits in PyNative until all work is computed, graphs included.

    An operator's error is raised once, by the first read: call it before a read of ours, outside of the shield.

    Raises:
        Exception: What MindSpore raises when some of it failed.
    """
    if ms.get_context("mode") == ms.PYNATIVE_MODE:
        api._pynative_executor.sync()


_working = threading.local()


@contextmanager
def own_work() -> Iterator[None]:
    """Marks what this thread calls inside as the detector's own, which a debugger does not record."""
    before = getattr(_working, "is_own", False)
    _working.is_own = True
    try:
        yield
    finally:
        _working.is_own = before


def is_own_work() -> bool:
    """Returns whether this thread works for the detector."""
    return getattr(_working, "is_own", False)


def report(reason: str) -> None:
    """Reports a problem to all listeners, and logs it once."""
    for listener in list(_listeners):
        try:
            listener.once(reason)
        except Exception as error:  # as of a sink
            reason = f"{reason}; and it could not be reported: {error!r}"
    if reason not in _logged:
        _logged.add(reason)
        _LOG.error("%s", reason)

"""Work that takes time, done beside the loop that answers."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Hashable
from typing import Any

__all__ = ["PATIENCE_SECONDS", "Worker"]

PATIENCE_SECONDS = 10.0
"""Nobody waits longer for a piece of work."""


class Worker:
    """Does work in one thread of its own, one piece after the other, for a loop that must not wait.

    Pieces with the same key that come before the first of them is begun share its result: a thousand scrapes at once
    are a few.
    """

    def __init__(self, name: str) -> None:
        self._waiting: dict[Hashable, asyncio.Future[Any]] = {}
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon, so that a collector that hangs can't keep a training from ending.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def do(self, key: Hashable, function: Callable[[], Any]) -> Any:
        """The result of `function`, or of one with the same key that was waiting already.

        Raises:
            TimeoutError: It took too long; the work itself goes on.
        """
        loop = asyncio.get_running_loop()
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = loop.create_future()
            future.add_done_callback(_look_at)
            self._queue.put(lambda: self._run(loop, key, future, function))
        return await asyncio.wait_for(asyncio.shield(future), PATIENCE_SECONDS)

    def stop(self) -> None:
        """Ends the thread once it has done what it has begun."""
        self._queue.put(None)

    def _run(
        self, loop: asyncio.AbstractEventLoop, key: Hashable, future: asyncio.Future[Any], function: Callable[[], Any]
    ) -> None:
        self._waiting.pop(key, None)  # who comes from now on must not get what was true before
        try:
            result = function()
        except Exception as error:  # whatever a collector does wrong is one failed scrape
            _tell(loop, future, future.set_exception, error)
        else:
            _tell(loop, future, future.set_result, result)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


def _tell(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], tell: Callable[[Any], None], what: object
) -> None:
    def unless_gone() -> None:
        if not future.done():
            tell(what)

    try:
        loop.call_soon_threadsafe(unless_gone)
    except RuntimeError:  # the server was closed meanwhile
        return


def _look_at(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # whoever asked may be gone; the loop would complain that nobody looked

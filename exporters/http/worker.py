"""Slow work in a thread beside the loop that answers."""

import asyncio
import queue
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

PATIENCE_SECONDS = 10.0  # longest time to wait for a piece of work


class Worker:
    """Worker that does one piece after the other in a separate thread, for a loop that must not block.

    Pieces with the same key that come before the first of them begins share its result: a thousand scrapes at once
    become a few.
    """

    def __init__(self, name: str) -> None:
        self._waiting: dict[Hashable, Future[Any]] = {}
        self._queue: queue.SimpleQueue[tuple[Hashable, Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._stopped = False
        # A daemon, so that a hanging collector cannot keep a training from ending.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def do(self, key: Hashable, function: Callable[[], Any]) -> Any:
        """Returns the result of `function`, or of a waiting one with the same key.

        Raises:
            TimeoutError: It took too long; the work itself goes on.
        """
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = Future()
            self._queue.put((key, future, function))
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), PATIENCE_SECONDS)

    def stop(self) -> None:
        """Ends the thread after its current piece; waiting callers get no result."""
        self._stopped = True
        self._queue.put(None)

    def _work(self) -> None:
        while (piece := self._queue.get()) is not None:
            key, future, function = piece
            self._waiting.pop(key, None)  # later callers must not get an outdated result
            result: Any = None
            failure: Exception | None = None
            try:
                result = function()
            except Exception as error:  # whatever a collector does wrong is one failed scrape
                failure = error
            if self._stopped or not future.set_running_or_notify_cancel():
                continue
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

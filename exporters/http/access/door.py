"""Who may come in, and in which order passwords are checked."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict
from functools import partial
from typing import NamedTuple

from asd.exporters.http import worker
from asd.exporters.http.access.basic_auth import BasicAuth
from asd.exporters.http.http_message import HttpRequest, Response, sentence

__all__ = ["Door"]

_REALM = {"WWW-Authenticate": 'Basic realm="asd", charset="UTF-8"'}
_REMEMBERED = 1000  # addresses that sent wrong passwords
_BUSY = "Another password from this address is being checked; valid is one at a time."


class _Check(NamedTuple):
    """A slow check that waits; those compare by their first two fields."""

    wrong: int  # passwords from this address so far
    number: int
    auth: BasicAuth
    header: str
    answer: asyncio.Future[bool]


class Door:
    """Checks user names and passwords, one at a time: guessing must not take more than one core from a training.

    Of each address one check waits at most, and addresses that have guessed wrong wait for those that have not. So a
    scraper that comes for the first time waits for the check that is going on, however many guess.
    """

    def __init__(self) -> None:
        self._worker: worker.Worker | None = None
        self._waiting: list[_Check] = []
        self._asking: dict[str, _Check] = {}
        self._wrong: OrderedDict[str, int] = OrderedDict()
        self._numbers = itertools.count()
        self._checking: asyncio.Task[None] | None = None

    async def refusal(self, request: HttpRequest, auth: BasicAuth | None) -> Response | None:
        """What to answer to somebody who may not come in; None for who may.

        Raises:
            TimeoutError: Too many passwords are being checked.
        """
        if auth is None:
            return None
        header = request.headers.get("authorization")
        known = auth.known(header)
        if known is None and header is not None:
            check = self._asking.get(request.client)
            if check is None:
                check = self._ask(request.client, auth, header)
            elif check.header != header or check.auth is not auth:
                return sentence(429, _BUSY, {"Retry-After": "1"})
            known = await asyncio.wait_for(asyncio.shield(check.answer), worker.PATIENCE_SECONDS)
        return None if known else sentence(401, "This needs a user name and its password.", _REALM)

    def stop(self) -> None:
        """Ends the thread."""
        if self._checking is not None:
            self._checking.cancel()
        if self._worker is not None:
            self._worker.stop()

    def _ask(self, client: str, auth: BasicAuth, header: str) -> _Check:
        answer = asyncio.get_running_loop().create_future()
        check = _Check(self._wrong.get(client, 0), next(self._numbers), auth, header, answer)
        self._asking[client] = check
        answer.add_done_callback(lambda _: self._answered(client, answer))
        heapq.heappush(self._waiting, check)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.get_running_loop().create_task(self._check_all())
        return check

    def _answered(self, client: str, answer: asyncio.Future[bool]) -> None:
        self._asking.pop(client, None)
        if answer.cancelled() or answer.exception() is not None or answer.result():
            return
        self._wrong[client] = self._wrong.pop(client, 0) + 1
        if len(self._wrong) > _REMEMBERED:
            self._wrong.popitem(last=False)

    async def _check_all(self) -> None:
        if self._worker is None:
            self._worker = worker.Worker("asd-auth")
        while self._waiting:
            check = heapq.heappop(self._waiting)
            try:
                right = await self._worker.do(check.number, partial(check.auth.allows, check.header))
            except Exception as error:  # the one check failed, not the door
                check.answer.set_exception(error)
            else:
                check.answer.set_result(bool(right))

"""What the endpoint answers: `/metrics`, `/healthz`, `/readyz`, `/events`, and `/devices` of a fault handler."""

from __future__ import annotations

import asyncio
import gzip
import json
import queue
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import gzip_accepted

from asd.errors import StateError
from asd.event import Event
from asd.exporters.http import event_query, exposition
from asd.exporters.http.basic_auth import BasicAuth
from asd.exporters.http.http_message import HttpRequest, Response, sentence

__all__ = ["Door", "Journal", "JournalPage", "Routes"]

_PATIENCE_SECONDS = 10.0
_GLANCE_SECONDS = 0.1
_GZIP_LEVEL = 1  # a third of the time of the default, for a tenth more bytes
_REALM = {"WWW-Authenticate": 'Basic realm="asd", charset="UTF-8"'}


class JournalPage(Protocol):
    """Some events of a journal, see `asd.exporters.prometheus.event_journal.Page`."""

    @property
    def events(self) -> list[str]:
        """The events in JSON."""

    @property
    def cursor(self) -> str:
        """Where to go on."""

    @property
    def missed(self) -> int:
        """How many were dropped before."""


class Journal(Protocol):
    """What keeps events for a reader that wants each once, see `asd.exporters.prometheus.event_journal`."""

    def page(self, after: Sequence[str], limit: int) -> JournalPage:
        """The events after cursors."""

    def has_after(self, after: Sequence[str]) -> bool:
        """Whether there are any; must not wait."""


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
        return await asyncio.wait_for(asyncio.shield(future), _PATIENCE_SECONDS)

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


class Door:
    """Checks user names and passwords."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    async def refusal(self, request: HttpRequest, auth: BasicAuth | None) -> Response | None:
        """What to answer to somebody who may not come in; None for who may.

        Raises:
            TimeoutError: Too many passwords are being checked.
        """
        if auth is None:
            return None
        header = request.headers.get("authorization")
        known = auth.known(header)
        if known is None:
            if self._worker is None:
                self._worker = Worker("asd-auth")
            # One check at a time: guessing passwords must not take more than one core from a training.
            known = bool(await self._worker.do((id(auth), header), lambda: auth.allows(header)))
        return None if known else sentence(401, "This needs a user name and its password.", _REALM)

    def stop(self) -> None:
        """Ends the thread."""
        if self._worker is not None:
            self._worker.stop()


class Routes:
    """Answers requests.

    Args:
        registry: What `/metrics` shows.
        events: What `/events` shows.
        ready: Empty when ready, else the reason why not, for `/readyz`.
        journal: What `/events?after=` reads; None where there is no such thing.
        devices: The JSON of `/devices` for a query; None where there is no such path. It may raise `QueryError`.
    """

    longest_body = 0

    def __init__(
        self,
        registry: CollectorRegistry,
        events: Callable[[], Sequence[Event]],
        ready: Callable[[], str],
        journal: Journal | None = None,
        devices: Callable[[Mapping[str, list[str]]], bytes] | None = None,
    ) -> None:
        self._registry = registry
        self._events = events
        self._ready = ready
        self._journal = journal
        self._metrics_worker = Worker("asd-metrics")
        self._events_worker = Worker("asd-events")
        self._door = Door()
        self._routes = {
            "/metrics": self._answer_metrics,
            "/healthz": self._answer_health,
            "/readyz": self._answer_ready,
            "/events": self._answer_events,
        }
        if devices is not None:
            self._devices = devices
            self._routes["/devices"] = self._answer_devices

    async def answer(self, request: HttpRequest, auth: BasicAuth | None) -> Response:
        """The response to `request`; whatever goes wrong is a response, too."""
        try:
            refusal = await self._door.refusal(request, auth)
            if refusal is not None:
                return refusal
            route = self._routes.get(request.path)
            if route is None:
                return sentence(404, f"There is nothing here; valid are {', '.join(self._routes)}.")
            if request.method not in ("GET", "HEAD"):
                return sentence(405, "Valid methods are GET and HEAD.", {"Allow": "GET, HEAD"})
            return await route(request)
        except asyncio.TimeoutError:
            return sentence(503, f"{request.path} took longer than {_PATIENCE_SECONDS:g} s.")
        except event_query.QueryError as error:
            return _json_error(400, str(error))
        except StateError as error:
            return _json_error(503, str(error))
        except Exception as error:  # a collector is anybody's code
            return sentence(500, f"{request.path} can't be answered: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """Ends the threads."""
        for worker in (self._metrics_worker, self._events_worker, self._door):
            worker.stop()

    async def _answer_metrics(self, request: HttpRequest) -> Response:
        encode, content_type = _choose(request.headers.get("accept") or "")
        names = tuple(sorted(set(request.query.get("name[]", ()))))
        zipped = gzip_accepted(request.headers.get("accept-encoding") or "")

        def render() -> bytes:
            registry = self._registry.restricted_registry(names) if names else self._registry
            text = encode(registry)
            return gzip.compress(text, _GZIP_LEVEL) if zipped else text

        body = await self._metrics_worker.do((content_type, names, zipped), render)
        return Response(200, body, content_type, {"Content-Encoding": "gzip"} if zipped else {})

    async def _answer_health(self, _: HttpRequest) -> Response:
        return sentence(200, "ok")

    async def _answer_ready(self, _: HttpRequest) -> Response:
        reason = await self._events_worker.do("ready", self._ready)
        return sentence(503, f"not ready: {reason}") if reason else sentence(200, "ready")

    async def _answer_events(self, request: HttpRequest) -> Response:
        if "after" in request.query and self._journal is not None:
            return await self._answer_after(self._journal, event_query.after(request.query))

        def find() -> bytes:
            return event_query.to_json(event_query.newest_first(self._events(), request.query))

        return Response(200, await self._events_worker.do(_key_of(request), find), "application/json")

    async def _answer_after(self, journal: Journal, wanted: event_query.After) -> Response:
        """The events after a cursor, and where to go on; who has seen all may wait for the next."""
        end = time.monotonic() + wanted.wait_seconds
        while not journal.has_after(wanted.cursors) and time.monotonic() < end:
            await asyncio.sleep(_GLANCE_SECONDS)
        page = await self._events_worker.do(wanted, lambda: journal.page(wanted.cursors, wanted.limit))
        body = ("[" + ",\n".join(page.events) + "]\n").encode()
        return Response(
            200, body, "application/json", {"X-ASD-Cursor": page.cursor, "X-ASD-Missed": str(page.missed)}
        )  # fmt: skip

    async def _answer_devices(self, request: HttpRequest) -> Response:
        def find() -> bytes:
            return self._devices(request.query)

        return Response(200, await self._events_worker.do(("devices", _key_of(request)), find), "application/json")


def _key_of(request: HttpRequest) -> Hashable:
    return tuple(sorted((name, tuple(values)) for name, values in request.query.items()))


def _choose(accept: str) -> tuple[exposition.Encoder, str]:
    try:
        return exposition.choose(accept)
    except (TypeError, ValueError):  # a version that is no number
        return exposition.choose("")


def _json_error(status: int, text: str) -> Response:
    return Response(status, json.dumps({"error": text}).encode() + b"\n", "application/json")

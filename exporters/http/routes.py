"""What the endpoint answers: `/metrics`, `/healthz`, `/readyz`, `/events`, and `/devices` of a fault handler."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import gzip_accepted

from asd.errors import StateError
from asd.event import Event
from asd.event_cursor import CURSOR_HEADER
from asd.exporters.http import event_query, exposition, worker
from asd.exporters.http.access.basic_auth import BasicAuth
from asd.exporters.http.access.door import Door
from asd.exporters.http.http_message import HttpRequest, Response, sentence
from asd.exporters.http.worker import Worker

__all__ = ["Journal", "JournalPage", "Routes"]

_GLANCE_SECONDS = 0.1
_GZIP_LEVEL = 1  # a third of the time of the default, for a tenth more bytes


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
            return sentence(503, f"{request.path} took longer than {worker.PATIENCE_SECONDS:g} s.")
        except event_query.QueryError as error:
            return _json_error(400, str(error))
        except StateError as error:
            return _json_error(503, str(error))
        except Exception as error:  # a collector is anybody's code
            return sentence(500, f"{request.path} can't be answered: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """Ends the threads."""
        for each in (self._metrics_worker, self._events_worker, self._door):
            each.stop()

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
            200, body, "application/json", {CURSOR_HEADER: page.cursor, "X-ASD-Missed": str(page.missed)}
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

"""Routes of the endpoint: `/metrics`, `/healthz`, `/readyz` and `/events`."""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted
from tornado.httputil import HTTPServerRequest

from asd.errors import StateError
from asd.event import Event
from asd.exporters.http import event_query, worker
from asd.exporters.http.event_query import Query
from asd.exporters.http.response import Response, json_error, sentence
from asd.exporters.http.server import HttpServer, listen
from asd.exporters.http.tls_files import WebConfig
from asd.exporters.http.worker import Worker
from asd.handler.inputs.cursor import CLOCK_HEADER, CURSOR_HEADER

_GLANCE_SECONDS = 0.1
_GZIP_LEVEL = 1  # a third of the time of the default, for a tenth more bytes
_REFUSED = re.compile(r"[\w*-]+\s*;\s*q\s*=\s*0(?:\.0*)?(?![.\d])", re.ASCII)
_MOST_PARAMETERS = 1000


class Journal(Protocol):
    """Journal of events for a reader that wants each once."""

    def page(self, after: Sequence[str], limit: int) -> event_query.Page:
        """Returns the events after cursors."""

    def has_after(self, after: Sequence[str]) -> bool:
        """Returns whether there are any; must not block."""


def start_server(
    *,
    registry: CollectorRegistry,
    ledger_events: Callable[[], Sequence[Event]],
    ready: Callable[[], str],
    address: str = "127.0.0.1",
    port: int = 9464,
    web_config: WebConfig | None = None,
    journal: Journal | None = None,
) -> HttpServer:
    """Serves `/metrics`, `/healthz`, `/readyz`, and `/events` from a separate thread.

    Args:
        registry: Metrics for `/metrics`.
        ledger_events: Returns the events for `/events`, in the order of arrival; called in another thread.
        ready: Returns why it is not ready, empty when it is; called in another thread.
        address: An IP address or host name of this machine; `0.0.0.0` or `::` for all of its addresses.
        port: 0..65535; 0 picks a free one.
        web_config: Certificates; None for plain HTTP.
        journal: Events for readers that want each once, with `/events?after=`; None without a journal.

    Raises:
        ConfigError: The address is not this machine's, or the port is in use or not allowed.
    """
    listener = listen(address, port, "the address to serve metrics on")
    return HttpServer(listener, _Routes(registry, ledger_events, ready, journal), web_config)


class _Routes:
    longest_body = 65536  # of requests that are refused: they get their answer and no reset

    def __init__(
        self,
        registry: CollectorRegistry,
        events: Callable[[], Sequence[Event]],
        ready: Callable[[], str],
        journal: Journal | None,
    ) -> None:
        self._registry = registry
        self._events = events
        self._ready = ready
        self._journal = journal
        self._metrics_worker = Worker("asd-metrics")
        self._events_worker = Worker("asd-events")
        self._routes = {
            "/metrics": self._answer_metrics,
            "/healthz": self._answer_health,
            "/readyz": self._answer_ready,
            "/events": self._answer_events,
        }

    async def answer(self, request: HTTPServerRequest) -> Response:
        route = self._routes.get(request.path)
        if route is None:
            return sentence(404, f"There is nothing here; valid are {', '.join(self._routes)}.")
        if request.method not in ("GET", "HEAD"):
            return sentence(405, "Valid methods are GET and HEAD.", {"Allow": "GET, HEAD"})
        try:
            query = parse_qs(request.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError as error:
            return sentence(400, f"The address of the request can't be read: {error}.")
        try:
            return await route(request, query)
        except asyncio.TimeoutError:
            return sentence(503, f"{request.path} took longer than {worker.PATIENCE_SECONDS:g} s.")
        except event_query.QueryError as error:
            return json_error(400, str(error))
        except StateError as error:
            return json_error(503, str(error))
        except Exception as error:  # a collector is anybody's code
            return sentence(500, f"{request.path} can't be answered: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """Ends the threads."""
        self._metrics_worker.stop()
        self._events_worker.stop()

    async def _answer_metrics(self, request: HTTPServerRequest, query: Query) -> Response:
        accept = request.headers.get("Accept", "")
        names = tuple(sorted(set(query.get("name[]", ()))))
        zipped = gzip_accepted(_REFUSED.sub("", request.headers.get("Accept-Encoding", "")))
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is not a number
            encode, content_type = choose_encoder("")

        def render() -> bytes:
            registry = self._registry.restricted_registry(names) if names else self._registry
            text = encode(registry)
            return gzip.compress(text, _GZIP_LEVEL) if zipped else text

        body = await self._metrics_worker.do((content_type, names, zipped), render)
        return Response(200, body, content_type, {"Content-Encoding": "gzip"} if zipped else {})

    async def _answer_health(self, _request: HTTPServerRequest, _query: Query) -> Response:
        return sentence(200, "ok")

    async def _answer_ready(self, _request: HTTPServerRequest, _query: Query) -> Response:
        reason = await self._events_worker.do("ready", self._ready)
        return sentence(503, f"not ready: {reason}") if reason else sentence(200, "ready")

    async def _answer_events(self, request: HTTPServerRequest, query: Query) -> Response:
        if "after" in query and self._journal is not None:
            return await self._answer_after(self._journal, event_query.after(query))

        def find() -> bytes:
            return event_query.to_json(event_query.newest_first(self._events(), query))

        return Response(200, await self._events_worker.do(request.uri, find), "application/json")

    async def _answer_after(self, journal: Journal, wanted: event_query.After) -> Response:
        """Returns the events after a cursor, and the next position; waits if there is none and the query allows it."""
        end = time.monotonic() + wanted.wait_seconds
        while not journal.has_after(wanted.cursors) and time.monotonic() < end:
            await asyncio.sleep(_GLANCE_SECONDS)
        page = await self._events_worker.do(wanted, lambda: journal.page(wanted.cursors, wanted.limit))
        body = ("[" + ",\n".join(page.events) + "]\n").encode()
        headers = {CURSOR_HEADER: page.cursor, CLOCK_HEADER: f"{time.time():.3f}", "X-ASD-Missed": str(page.missed)}
        headers |= {"Connection": "keep-alive"}
        return Response(200, body, "application/json", headers)

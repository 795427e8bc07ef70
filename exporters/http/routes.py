"""Routes of the endpoint: `/metrics`, `/healthz`, `/readyz` and `/events`."""

import asyncio
import gzip
import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted
from tornado.iostream import IOStream
from tornado.web import Application, HTTPError, RequestHandler

from asd.errors import StateError
from asd.event import Event
from asd.exporters.http import event_query, server, worker
from asd.exporters.http.event_query import Query, QueryError
from asd.exporters.http.server import HttpServer, listen
from asd.exporters.http.tls_files import WebConfig
from asd.exporters.http.worker import Worker
from asd.handler.inputs.cursor import CLOCK_HEADER, CURSOR_HEADER, FLEET_HEADER

_GLANCE_SECONDS = 0.1
_GZIP_LEVEL = 1  # a third of the time of the default, for a tenth more bytes
_REFUSED = re.compile(r"[\w*-]+\s*;\s*q\s*=\s*0(?:\.0*)?(?![.\d])", re.ASCII)
_MOST_PARAMETERS = 1000
_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"
_SENTENCES = {
    400: "The request can't be read.",
    403: "The certificate has no name that is allowed here.",
    404: "There is nothing here; paths are /metrics, /healthz, /readyz, /events.",
    405: "Valid methods are GET and HEAD.",
}


def start_server(
    *,
    registry: CollectorRegistry,
    ledger_events: Callable[[], Sequence[Event]],
    ready: Callable[[], str],
    address: str = "127.0.0.1",
    port: int = 9464,
    web_config: WebConfig | None = None,
    journal: Any = None,
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
    """
    listener = listen(address, port, "the address to serve metrics on")
    of_metrics, of_events = Worker("asd-metrics"), Worker("asd-events")
    routes: list[Any] = [
        ("/metrics", _Metrics, {"source": registry, "work": of_metrics.do}),
        ("/healthz", _Route, {"source": ready}),
        ("/readyz", _Ready, {"source": ready, "work": of_events.do}),
        ("/events", _Events, {"source": ledger_events, "work": of_events.do, "journal": journal}),
    ]
    application = Application(routes, default_handler_class=_Route, log_function=lambda _: None)
    return HttpServer(listener, application, web_config, on_end=(of_metrics.stop, of_events.stop))


class _Route(RequestHandler):
    """Route whose `answer` returns the body of a response; there is nothing at this path without a source."""

    def initialize(self, source: Any = None, work: Any = None, journal: Any = None) -> None:
        self.source, self.work, self.journal = source, work, journal
        self.server: HttpServer = self.settings["server"]
        self.stream: IOStream = self.request.connection.stream  # type: ignore[union-attr]

    def set_default_headers(self) -> None:
        """Names no version, and forbids guessing types."""
        for name, value in (("Server", "asd"), ("Content-Type", _TEXT), ("X-Content-Type-Options", "nosniff")):
            self.set_header(name, value)

    def compute_etag(self) -> None:
        """Returns None, because no two answers are the same."""

    def prepare(self) -> None:
        """Refuses requests without a valid certificate, and requests with an unknown path or method."""
        self.server.clients.answer(self.stream)
        if not self.server.may_ask(self.request):
            raise HTTPError(403)
        if self.source is None:
            raise HTTPError(404)
        if self.request.method not in ("GET", "HEAD"):
            raise HTTPError(405)

    def on_finish(self) -> None:
        """Waits until the client has taken its answer, and for its next request."""
        self.server.clients.wait_for(self.stream)

    async def get(self) -> None:
        """Answers; a client that does not take its answer in time loses its place."""
        try:
            query = parse_qs(self.request.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError as error:
            raise HTTPError(400) from error
        self.write(await self.answer(query))
        try:
            await asyncio.wait_for(self.finish(), server.PATIENCE_SECONDS)
        except (OSError, asyncio.TimeoutError):  # it is gone, or does not read
            self.stream.close()

    head = get

    async def answer(self, query: Query) -> bytes:  # noqa: ARG002
        """Returns the body of the response."""
        return b"ok\n"

    def log_exception(self, *_: Any) -> None:
        """Logs nothing: anybody who can reach the port could fill the log."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Writes a sentence about a failure."""
        error, path = kwargs.get("exc_info", (None, None))[1], self.request.path
        if isinstance(error, (QueryError, StateError)):
            self.set_status(400 if isinstance(error, QueryError) else 503)
            self.set_header("Content-Type", _JSON)
            text = json.dumps({"error": str(error)})
        elif isinstance(error, asyncio.TimeoutError):
            self.set_status(503)
            text = f"{path} took longer than {worker.PATIENCE_SECONDS:g} s."
        elif status_code in _SENTENCES:
            text = _SENTENCES[status_code]
        else:  # a collector is anybody's code
            text = f"{path} can't be answered: {type(error).__name__}: {error}"
        if status_code == 405:
            self.set_header("Allow", "GET, HEAD")
        self.write(f"{text}\n".encode(errors="backslashreplace"))


class _Metrics(_Route):
    async def answer(self, query: Query) -> bytes:
        names = tuple(sorted(set(query.get("name[]", ()))))
        zipped = gzip_accepted(_REFUSED.sub("", self.request.headers.get("Accept-Encoding", "")))
        try:
            encode, content_type = choose_encoder(self.request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # a version that is not a number
            encode, content_type = choose_encoder("")

        def render() -> bytes:
            text = encode(self.source.restricted_registry(names) if names else self.source)
            return gzip.compress(text, _GZIP_LEVEL) if zipped else text

        body: bytes = await self.work((content_type, names, zipped), render)
        self.set_header("Content-Type", content_type)
        if zipped:
            self.set_header("Content-Encoding", "gzip")
        return body


class _Ready(_Route):
    async def answer(self, query: Query) -> bytes:  # noqa: ARG002
        reason = await self.work("ready", self.source)
        self.set_status(503 if reason else 200)
        return (f"not ready: {reason}\n" if reason else "ready\n").encode(errors="backslashreplace")


class _Events(_Route):
    async def answer(self, query: Query) -> bytes:
        self.set_header("Content-Type", _JSON)
        if "after" in query and self.journal is not None:
            return await self._after(self.journal, event_query.after(query))
        find = lambda: event_query.to_json(event_query.newest_first(self.source(), query))  # noqa: E731
        return await self.work(self.request.uri, find)  # type: ignore[no-any-return]

    async def _after(self, journal: Any, wanted: event_query.After) -> bytes:
        """Returns the events after a cursor, and the next position; waits if there is none and the query allows it."""
        end = time.monotonic() + wanted.wait_seconds
        self.server.clients.wait_for(self.stream)  # where all places are taken, the longest waiter gives up its own
        while not (journal.has_after(wanted.cursors) or self.stream.closed()) and time.monotonic() < end:
            await asyncio.sleep(_GLANCE_SECONDS)
        self.server.clients.answer(self.stream)
        page = await self.work(wanted, lambda: journal.page(wanted.cursors, wanted.limit))
        headers = {CURSOR_HEADER: page.cursor, CLOCK_HEADER: f"{time.time():.3f}", "X-ASD-Missed": str(page.missed)}
        for name, value in {**headers, FLEET_HEADER: journal.fleet, "Connection": "keep-alive"}.items():
            self.set_header(name, value)
        return ("[" + ",\n".join(page.events) + "]\n").encode()

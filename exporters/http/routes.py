"""What the endpoint answers: `/metrics`, `/healthz`, `/readyz`, `/events`, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import gzip_accepted

from asd.event import Event
from asd.exporters.http import event_query, exposition, worker
from asd.exporters.http.basic_auth import BasicAuth
from asd.exporters.http.door import Door
from asd.exporters.http.http_message import HttpRequest, Response, sentence
from asd.exporters.http.worker import Worker

__all__ = ["Routes"]

_PATHS = "/metrics, /healthz, /readyz, /events"
_GZIP_LEVEL = 1  # a third of the time of the default, for a tenth more bytes


class Routes:
    """Answers requests.

    Args:
        registry: What `/metrics` shows.
        events: What `/events` shows.
        ready: Empty when ready, else the reason why not, for `/readyz`.
    """

    longest_body = 0

    def __init__(
        self, registry: CollectorRegistry, events: Callable[[], Sequence[Event]], ready: Callable[[], str]
    ) -> None:
        self._registry = registry
        self._events = events
        self._ready = ready
        self._metrics_worker = Worker("asd-metrics")
        self._events_worker = Worker("asd-events")
        self._door = Door()
        self._routes = {
            "/metrics": self._answer_metrics,
            "/healthz": self._answer_health,
            "/readyz": self._answer_ready,
            "/events": self._answer_events,
        }

    async def answer(self, request: HttpRequest, auth: BasicAuth | None) -> Response:
        """The response to `request`; whatever goes wrong is a response, too."""
        try:
            refusal = await self._door.refusal(request, auth)
            if refusal is not None:
                return refusal
            route = self._routes.get(request.path)
            if route is None:
                return sentence(404, f"There is nothing here; valid are {_PATHS}.")
            if request.method not in ("GET", "HEAD"):
                return sentence(405, "Valid methods are GET and HEAD.", {"Allow": "GET, HEAD"})
            return await route(request)
        except asyncio.TimeoutError:
            return sentence(503, f"{request.path} took longer than {worker.PATIENCE_SECONDS:g} s.")
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
        def find() -> bytes:
            return event_query.to_json(event_query.newest_first(self._events(), request.query))

        key = tuple(sorted((name, tuple(values)) for name, values in request.query.items()))
        try:
            return Response(200, await self._events_worker.do(key, find), "application/json")
        except event_query.QueryError as error:
            return _json_error(400, str(error))


def _choose(accept: str) -> tuple[exposition.Encoder, str]:
    try:
        return exposition.choose(accept)
    except (TypeError, ValueError):  # a version that is no number
        return exposition.choose("")


def _json_error(status: int, text: str) -> Response:
    return Response(status, json.dumps({"error": text}).encode() + b"\n", "application/json")

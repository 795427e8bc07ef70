"""Receives alerts from Alertmanager.

An alert is a wake-up call and no event store: Alertmanager groups, delays, repeats and drops. What happened is read
from the event logs, at once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from asd.errors import ConfigError

__all__ = ["Alert", "Webhook", "parse_alerts"]

LARGEST = 1 << 20  # bytes of a request
_MOST_ALERTS = 10_000
_PATIENCE = 10.0  # seconds for a request
_VERSION = "4"


class Alert(NamedTuple):
    """One alert.

    Attributes:
        key: The same for the same alert however often it is sent.
        firing: Whether it is firing; else it is resolved.
        labels: Its labels.
    """

    key: str
    firing: bool
    labels: Mapping[str, str]


def parse_alerts(body: bytes) -> list[Alert]:
    """Reads what Alertmanager posts.

    Raises:
        ValueError: It is no such JSON; the sentence says what is wrong.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The body is no JSON: {error}.") from error
    if not isinstance(message, dict) or message.get("version") != _VERSION:
        found = message.get("version") if isinstance(message, dict) else type(message).__name__
        raise ValueError(f"The version is {found!r}; valid is {_VERSION!r}, as Alertmanager sends it.")
    alerts = message.get("alerts")
    if not isinstance(alerts, list) or len(alerts) > _MOST_ALERTS:
        raise ValueError(f"The field alerts is none; valid is a list of at most {_MOST_ALERTS} alerts.")
    return [_alert(item) for item in alerts]


class Webhook:
    """Serves until it is closed.

    Args:
        address: Where to listen.
        port: 0 picks a free one.
        receive: Is called with the alerts of each message, in a thread of its own.

    Attributes:
        url: Where Alertmanager is to post to.

    Raises:
        ConfigError: It can't listen there.
    """

    def __init__(self, address: str, port: int, receive: Callable[[list[Alert]], None]) -> None:
        handler = type("_BoundHandler", (_Handler,), {"receive": staticmethod(receive)})
        try:
            self._server = _Server((address, port), handler)
        except OSError as error:
            raise ConfigError(
                "--webhook", f"{address}:{port}", f"it must be a free port of this machine ({error.strerror or error})"
            ) from error
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="asd-webhook", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in place[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(place, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    receive: Callable[[list[Alert]], None]
    timeout = _PATIENCE
    server_version = "asd"
    sys_version = ""

    def do_POST(self) -> None:
        """Takes the alerts in."""
        if self.path.partition("?")[0] not in ("/", "/webhook", "/alerts"):
            self._answer(404, "Valid is /.")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            self._answer(411, "The length of the body must be given.")
            return
        if len(length) > 9 or int(length) > LARGEST:
            self._answer(413, f"The body has {length[:20]} bytes; valid are at most {LARGEST}.")
            return
        body = self.rfile.read(int(length))
        try:
            alerts = parse_alerts(body)
        except ValueError as error:
            self._answer(400, str(error))
            return
        self.receive(alerts)
        self._answer(200, f"{len(alerts)} alerts taken in.")

    def do_GET(self) -> None:
        """Says what is served here."""
        self._answer(405, "This is a webhook of Alertmanager; valid is POST.", {"Allow": "POST"})

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def _answer(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        body = f"{text}\n".encode(errors="replace")
        self.close_connection = True
        self.send_response(status)
        for name, value in {
            "Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body)), "Connection": "close",
            **(headers or {}),
        }.items():  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _alert(item: object) -> Alert:
    labels = item.get("labels") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(labels, dict):
        raise ValueError("An alert has no labels; valid is an object with labels.")  # noqa: TRY004
    texts = {str(name): str(value) for name, value in labels.items()}
    fingerprint = str(item.get("fingerprint") or sorted(texts.items()))
    return Alert(f"{fingerprint} {item.get('startsAt', '')}", item.get("status") != "resolved", texts)

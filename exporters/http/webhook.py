"""What takes the messages of Alertmanager: a POST to `/`, `/webhook` or `/alerts`, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from tornado.httputil import HTTPServerRequest

from asd.exporters.http.response import Response, sentence
from asd.exporters.http.server import HttpServer, listen
from asd.exporters.http.tls_files import WebConfig

__all__ = ["start_webhook"]

_PATHS = ("/", "/webhook", "/alerts")


def start_webhook(
    address: str, port: int, take: Callable[[bytes], str], web_config: WebConfig | None = None
) -> HttpServer:
    """Takes messages in a thread of its own.

    Args:
        address: Where to listen, as in `asd.exporters.http.routes.start_server`.
        port: 0 picks a free one.
        take: Is called with each message in the thread that serves all, so it must not wait. Returns what to answer;
            a ValueError says what is wrong with the message.
        web_config: Certificates; None for plain HTTP.

    Raises:
        ConfigError: It can't listen there.
    """
    return HttpServer(listen(address, port, "--webhook"), _Webhook(take), web_config)


class _Webhook:
    longest_body = 1 << 20

    def __init__(self, take: Callable[[bytes], str]) -> None:
        self._take = take

    async def answer(self, request: HTTPServerRequest) -> Response:
        if request.path not in _PATHS:
            return sentence(404, "Valid is /.")
        if request.method != "POST":
            return sentence(405, "This is a webhook of Alertmanager; valid is POST.", {"Allow": "POST"})
        try:
            return sentence(200, self._take(request.body))
        except ValueError as error:
            return sentence(400, str(error))

    def stop(self) -> None:
        """Has nothing to end."""

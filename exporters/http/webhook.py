"""What takes the messages of Alertmanager: a POST to `/`, `/webhook` or `/alerts`, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from asd.exporters.http.access.basic_auth import BasicAuth
from asd.exporters.http.access.door import Door
from asd.exporters.http.access.web_config import WebConfig
from asd.exporters.http.http_message import HttpRequest, Response, sentence
from asd.exporters.http.server import HttpServer, listen

__all__ = ["start_webhook"]

_PATHS = ("/", "/webhook", "/alerts")


def start_webhook(
    address: str, port: int, take: Callable[[bytes], str], web_config: WebConfig | None = None
) -> HttpServer:
    """Takes messages in a thread of its own.

    Args:
        address: Where to listen, as in `asd.exporters.http.server.start_server`.
        port: 0 picks a free one.
        take: Is called with each message in the thread that serves all, so it must not wait. Returns what to answer;
            a ValueError says what is wrong with the message.
        web_config: TLS and passwords, as of the endpoint; None for neither.

    Raises:
        ConfigError: It can't listen there.
    """
    return HttpServer(listen(address, port, "--webhook"), _Webhook(take), web_config)


class _Webhook:
    longest_body = 1 << 20

    def __init__(self, take: Callable[[bytes], str]) -> None:
        self._take = take
        self._door = Door()

    async def answer(self, request: HttpRequest, auth: BasicAuth | None) -> Response:
        try:
            refusal = await self._door.refusal(request, auth)
        except asyncio.TimeoutError:
            return sentence(503, "Too many passwords are being checked.")
        if refusal is not None:
            return refusal
        if request.path not in _PATHS:
            return sentence(404, "Valid is /.")
        if request.method != "POST":
            return sentence(405, "This is a webhook of Alertmanager; valid is POST.", {"Allow": "POST"})
        try:
            return sentence(200, self._take(request.body))
        except ValueError as error:
            return sentence(400, str(error))

    def stop(self) -> None:
        """Ends the thread that checks passwords."""
        self._door.stop()

"""The one HTTP server, of the endpoint and the webhook: a thread that serves any number of clients, however slow.

A loop waits for all clients at once, so one that never sends or never reads costs a socket and no thread, and only
until its time is up. What takes time, collecting and rendering, happens in other threads; see `routes`. Python's own
servers have a thread for each client and no end for a slow one, so this one is written by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from asd.errors import ConfigError
from asd.event import Event
from asd.event_cursor import CURSOR_HEADER
from asd.exporters.http.access.basic_auth import BasicAuth
from asd.exporters.http.access.web_config import WebConfig, WebSettings
from asd.exporters.http.http_message import HttpError, HttpRequest, Response, body_size, parse_head, sentence
from asd.exporters.http.routes import Journal, Routes

__all__ = ["HttpServer", "Site", "listen", "start_server"]

_BACKLOG = 4096  # clients that wait to be accepted; the kernel may allow fewer
_MOST_CLIENTS = 256  # at a time; the others wait, or take the place of a slow one
_SLOW_SECONDS = 1.0  # that a client may keep the server waiting while others wait for its place
_PATIENCE_SECONDS = 10.0
_PATIENCE_WHEN_BUSY_SECONDS = 5.0
_LONGEST_HEAD = 65536
_LONGEST_REST = 1 << 20
_CLOSING_SECONDS = 2.0
_PAUSE_SECONDS = 0.05


class Site(Protocol):
    """What a server answers.

    Attributes:
        longest_body: Bytes of a request's body that are read; 0 for a site that has no use for one.
    """

    longest_body: int

    async def answer(self, request: HttpRequest, auth: BasicAuth | None) -> Response:
        """The response to `request`."""

    def stop(self) -> None:
        """Is called when the server ends."""


class HttpServer:
    """A running server; see `start_server`.

    Attributes:
        address: The address it listens on.
        port: The port it listens on, 1..65535.
        url: For example `http://127.0.0.1:9464`, without a path.
    """

    def __init__(self, listener: socket.socket, site: Site, web_config: WebConfig | None) -> None:
        self.address, self.port = listener.getsockname()[:2]
        host = f"[{self.address}]" if ":" in self.address else self.address
        self.url = f"{'https' if web_config is not None and web_config.uses_tls else 'http'}://{host}:{self.port}"
        self._listener = listener
        self._site = site
        self._web_config = web_config
        self._loop = asyncio.SelectorEventLoop()
        self._loop.set_exception_handler(lambda *_: None)  # a client that fails is no news
        self._clients: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], float] = {}  # since when a client is waited for, the longest first
        self._most_clients = _most_clients()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="asd-endpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving and frees the port; what is being answered is cut off. Closing twice is harmless."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_CLOSING_SECONDS)

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._attend_all())
        finally:
            self._listener.close()
            self._site.stop()
            self._loop.close()

    async def _attend_all(self) -> None:
        self._accept_on()
        await self._closing.wait()
        self._loop.remove_reader(self._listener)
        await asyncio.sleep(0)  # so that each client is being attended to, and its socket is somebody's to close
        clients = tuple(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        for _ in range(3):  # connections close in the next turns of the loop
            await asyncio.sleep(0)

    def _accept_on(self, _: object = None) -> None:
        if not self._closing.is_set():
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Takes in who waits; at the limit in the place of the slowest, or else once a client has gone."""
        while len(self._clients) < self._most_clients or self._slowest() is not None:
            try:
                socket_of_client = self._listener.accept()[0]
            except (BlockingIOError, ConnectionError):
                return
            except OSError:  # this process has too many files open
                self._accept_later()
                return
            slowest = self._slowest()
            if len(self._clients) >= self._most_clients and slowest is not None:
                self._clients.discard(slowest)
                del self._idle[slowest]
                slowest.cancel()
            socket_of_client.settimeout(0)
            client = self._loop.create_task(self._attend(socket_of_client))
            self._clients.add(client)
            client.add_done_callback(self._gone)
        self._accept_later()

    def _accept_later(self) -> None:
        self._loop.remove_reader(self._listener)
        self._loop.call_later(_PAUSE_SECONDS, self._accept_on)

    def _gone(self, client: asyncio.Task[None]) -> None:
        self._clients.discard(client)
        self._idle.pop(client, None)
        self._accept_on()

    def _slowest(self) -> asyncio.Task[None] | None:
        """Who has kept the server waiting the longest, if that is too long; none whose answer is being made."""
        client, since = next(iter(self._idle.items()), (None, 0.0))
        return client if client is not None and self._loop.time() - since >= _SLOW_SECONDS else None

    def _wait_for_client(self, *, waiting: bool) -> None:
        client = asyncio.current_task()
        assert client is not None
        self._idle.pop(client, None)
        if waiting and client in self._clients:
            self._idle[client] = self._loop.time()

    async def _attend(self, client: socket.socket) -> None:
        """Serves one client; every wait in here has an end."""
        busy = len(self._clients) > self._most_clients // 2
        patience = _PATIENCE_WHEN_BUSY_SECONDS if busy else _PATIENCE_SECONDS
        settings = self._web_config.current() if self._web_config is not None else WebSettings()
        self._wait_for_client(waiting=True)
        reader = asyncio.StreamReader(_LONGEST_HEAD, self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, client, ssl=settings.context,
                ssl_handshake_timeout=patience if settings.context is not None else None,
            )  # fmt: skip
        except (OSError, asyncio.TimeoutError):  # no TLS, a certificate that is refused, or nothing at all
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            if settings.tls is None or settings.tls.allows(transport.get_extra_info("peercert")):
                while await self._converse(reader, writer, settings, patience):
                    pass
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is gone or too slow
        finally:
            transport.abort()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, settings: WebSettings, patience: float
    ) -> bool:
        """Answers one request; returns whether the client may ask for more over the same connection."""
        with_body, unread, stays = True, True, False
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patience)
            request = parse_head(head)
            with_body, unread = request.method != "HEAD", request.has_body
            if unread and self._site.longest_body:
                size = body_size(request.headers, self._site.longest_body)
                body = await asyncio.wait_for(reader.readexactly(size), patience)
                request, unread = request._replace(body=body), False
            self._wait_for_client(waiting=False)
            client = str((writer.get_extra_info("peername") or ("",))[0])
            response = await self._site.answer(request._replace(client=client), settings.auth)
            stays = not unread and self._may_stay(request, response, settings)
        except HttpError as error:
            response = error.response
        except asyncio.LimitOverrunError:
            response = sentence(431, f"The head of the request is too long; valid are at most {_LONGEST_HEAD} bytes.")
        self._wait_for_client(waiting=True)
        if stays:
            response = response._replace(headers={**response.headers, "Connection": "keep-alive"})
        await asyncio.wait_for(
            self._send(reader, writer, response, settings, with_body, unread, stays), _PATIENCE_SECONDS
        )
        return stays

    def _may_stay(self, request: HttpRequest, response: Response, settings: WebSettings) -> bool:
        """Whether this is a handler that pulls, and it was let in by what is in force now."""
        current = self._web_config.current() if self._web_config is not None else settings
        asked = (request.headers.get("connection") or "").lower() == "keep-alive"
        return asked and response.status == 200 and CURSOR_HEADER in response.headers and current is settings

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response: Response, settings: WebSettings,
        with_body: bool, unread: bool, stays: bool,  # noqa: FBT001
    ) -> None:  # fmt: skip
        response = response._replace(headers={**settings.headers, **response.headers})
        writer.write(response.to_bytes(with_body=with_body))
        await writer.drain()
        if stays:
            return
        if unread:
            await self._swallow(reader, writer)
        writer.close()
        await writer.wait_closed()

    async def _swallow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads what the client still sends: a socket closed with unread bytes takes the response back."""
        if writer.can_write_eof():
            writer.write_eof()
        swallowed = 0
        with contextlib.suppress(asyncio.TimeoutError):
            while swallowed < _LONGEST_REST and (rest := await asyncio.wait_for(reader.read(65536), 1.0)):
                swallowed += len(rest)


def start_server(
    *,
    registry: CollectorRegistry,
    ledger_events: Callable[[], Sequence[Event]],
    ready: Callable[[], str],
    address: str = "127.0.0.1",
    port: int = 9464,
    web_config: WebConfig | None = None,
    journal: Journal | None = None,
    devices: Callable[[Mapping[str, list[str]]], bytes] | None = None,
) -> HttpServer:
    """Serves `/metrics`, `/healthz`, `/readyz`, `/events` and what else is given from a thread of its own.

    Args:
        registry: What `/metrics` shows.
        ledger_events: The events for `/events`, in the order they came; called in another thread.
        ready: Empty when ready, else the reason why not; called in another thread.
        address: An IP address or host name of this machine; `0.0.0.0` or `::` for all of its addresses.
        port: 0..65535; 0 picks a free one.
        web_config: TLS and passwords; None for neither.
        journal: Events for who wants each once, with `/events?after=`.
        devices: The JSON of `/devices`, as of `asd.exporters.http.routes.Routes`; called in another thread.

    Raises:
        ConfigError: The address is none of this machine's, or the port is in use or not allowed.
    """
    listener = listen(address, port, "the address to serve metrics on")
    return HttpServer(listener, Routes(registry, ledger_events, ready, journal, devices), web_config)


def listen(address: str, port: int, setting: str) -> socket.socket:
    """A socket that listens there; what is wrong is told of `setting`.

    Raises:
        ConfigError: The address is none of this machine's, or the port is in use or not allowed.
    """
    host = address[1:-1] if address[:1] == "[" and address[-1:] == "]" else address
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not host:
        raise ConfigError(setting, where, "valid is an address of this machine, or 0.0.0.0 for all of them")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        reason = f"the address is not known ({getattr(error, 'strerror', None) or error})"
        raise ConfigError(setting, where, reason) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise ConfigError(setting, where, _REASONS.get(error.errno or 0, error.strerror or str(error))) from error
    _leave_to_parent(listener)
    return listener


_REASONS = {
    errno.EADDRINUSE: "the port is in use by another program; valid is a free one, or 0 to have one picked",
    errno.EACCES: "this user may not use the port; valid is one from 1024 on",
    errno.EADDRNOTAVAIL: "the address is none of this machine's",
}


def _most_clients() -> int:
    """At most a quarter of the files this process may have open: the rest is for what it is there for."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_CLIENTS if allowed < 0 else min(_MOST_CLIENTS, max(1, allowed // 4))


def _leave_to_parent(listener: socket.socket) -> None:
    """A forked child, such as a data loader, must not keep the port when this process ends."""
    listeners = weakref.ref(listener)

    def close_in_child() -> None:
        kept = listeners()
        if kept is not None:
            kept.close()

    os.register_at_fork(after_in_child=close_in_child)

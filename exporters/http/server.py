"""HTTP server on Tornado, in a thread that serves any number of slow clients.

Tornado's settings bound the size and the time of a head and a body. This module bounds the number of clients at a time,
and the time to take an answer.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream, SSLIOStream
from tornado.web import Application

from asd.errors import ConfigError
from asd.exporters.http.tls_files import WebConfig

_BACKLOG = 4096  # clients that wait to be accepted; the kernel may allow fewer
PATIENCE_SECONDS = 10.0
_LONGEST_HEAD = _LONGEST_BODY = 65536  # a request with a body gets an answer and no reset
_CLOSING_SECONDS = 2.0
_MOST_CLIENTS = 256  # at a time; the others wait, or replace a slow one
_SLOW_SECONDS = 1.0  # for which a client may keep the server waiting while others wait
_PAUSE_SECONDS = 0.05
_THREAD = "asd-endpoint"


class HttpServer:
    """Server of an application, from its construction until `close`.

    Args:
        listener: A socket from `listen`.
        application: Application that answers requests; its setting `server` is this.
        web_config: Certificates; None for plain HTTP.
        on_end: Functions to call when the server has ended.

    Attributes:
        address: The address it listens on.
        port: The port it listens on, 1..65535.
        url: For example `http://127.0.0.1:9464`, without a path.
        clients: Clients that it waits for.
    """

    def __init__(
        self,
        listener: socket.socket,
        application: Application,
        web_config: WebConfig | None,
        on_end: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.address, self.port = listener.getsockname()[:2]
        host = f"[{self.address}]" if ":" in self.address else self.address
        scheme = "http" if web_config is None or web_config.current().context is None else "https"
        self.url = f"{scheme}://{host}:{self.port}"
        self.clients = Clients()
        self._listener, self._application, self._web_config, self._on_end = listener, application, web_config, on_end
        application.settings["server"] = self
        for name in ("tornado.general", "tornado.application"):  # anybody who can reach the port could fill the log
            logging.getLogger(name).addFilter(lambda record: record.threadName != _THREAD)
        self._loop = asyncio.SelectorEventLoop()
        self._loop.set_exception_handler(lambda *_: None)  # failures of clients are not logged
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=_THREAD, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving and frees the port; unfinished answers are cut off. A second call is harmless."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_CLOSING_SECONDS)

    def may_ask(self, request: HTTPServerRequest) -> bool:
        """Returns whether the client's certificate is for a name that may send requests."""
        names = self._web_config.current().allowed_names if self._web_config is not None else ()
        certificate: Any = request.get_ssl_certificate() if names else None
        return not names or any(name in names for _, name in (certificate or {}).get("subjectAltName", ()))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._listener.close()
            for function in self._on_end:
                function()
            self._loop.close()

    async def _serve(self) -> None:
        server = HTTPServer(
            self._application,
            max_header_size=_LONGEST_HEAD,
            max_body_size=_LONGEST_BODY,
            idle_connection_timeout=PATIENCE_SECONDS,  # for all of a head, however slowly it comes
            body_timeout=PATIENCE_SECONDS,  # for all of a body
        )
        accepting = asyncio.ensure_future(self._accept_all(server))
        await self._closing.wait()
        self.clients.close()
        others = {accepting, *asyncio.all_tasks()} - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.close_all_connections(), _CLOSING_SECONDS / 2)

    async def _accept_all(self, server: HTTPServer) -> None:
        while True:
            try:
                client, place = await self._accept()
            except OSError:  # the client has gone, or this process has too many files open
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                await self.clients.make_room()
                stream = self._stream(client)
            except BaseException as error:
                client.close()
                if isinstance(error, OSError):
                    continue
                raise
            self.clients.wait_for(stream)
            server.handle_stream(stream, place)

    async def _accept(self) -> tuple[socket.socket, Any]:
        """Returns the next client; unlike the loop's `sock_accept` it loses none when it is cancelled."""
        arrived = asyncio.Event()
        self._loop.add_reader(self._listener, arrived.set)
        try:
            await arrived.wait()
        finally:
            self._loop.remove_reader(self._listener)
        client, place = self._listener.accept()
        client.settimeout(0)
        return client, place

    def _stream(self, client: socket.socket) -> IOStream:
        context = self._web_config.current().context if self._web_config is not None else None
        most = _LONGEST_HEAD + _LONGEST_BODY
        if context is None:
            return IOStream(client, max_buffer_size=most)
        wrapped = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        return SSLIOStream(wrapped, max_buffer_size=most)


def listen(address: str, port: int, setting: str) -> socket.socket:
    """Returns a socket that listens there; errors name `setting`."""
    host = address[1:-1] if address[:1] == "[" and address[-1:] == "]" else address
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not host:
        raise ConfigError(setting, where, "it must be an address of this machine, or 0.0.0.0 for all")
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
    return listener


_REASONS = {
    errno.EADDRINUSE: "the port is in use by another program; pass a free one, or 0 to pick one",
    errno.EACCES: "this user may not use the port; pass one from 1024 on",
    errno.EADDRNOTAVAIL: "this machine does not have the address",
}


class Clients:
    """Clients for which the server waits, and since when."""

    def __init__(self) -> None:
        self._since: dict[IOStream, float | None] = {}  # None while its answer is being made
        # The process needs the rest of its open files for its own work.
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = _MOST_CLIENTS if allowed < 0 else min(_MOST_CLIENTS, max(1, allowed // 4))

    async def make_room(self) -> None:
        """Returns once there is room for one more client; it may close the slowest one."""
        while not self._has_room():
            await asyncio.sleep(_PAUSE_SECONDS)

    def wait_for(self, client: IOStream) -> None:
        """Notes that the server waits for a client: for its request, or until it takes its answer."""
        self._since[client] = time.monotonic()

    def answer(self, client: IOStream) -> None:
        """Notes that a client waits for the server."""
        self._since[client] = None

    def close(self) -> None:
        """Closes all connections."""
        for client in self._since:
            client.close()

    def _has_room(self) -> bool:
        for client in [client for client in self._since if client.closed()]:
            del self._since[client]
        if len(self._since) < self._most:
            return True
        waiting = [(since, client) for client, since in self._since.items() if since is not None]
        since, slowest = min(waiting, key=lambda each: each[0], default=(0.0, None))
        if slowest is None or time.monotonic() - since < _SLOW_SECONDS:
            return False
        slowest.close()
        del self._since[slowest]
        return True

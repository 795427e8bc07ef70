"""Limits the connections of a server: a client that keeps it waiting makes room for a new one."""

import asyncio
import resource
import time

from tornado.iostream import IOStream

_MOST_CLIENTS = 256  # at a time; the others wait, or replace a slow one
_SLOW_SECONDS = 1.0  # for which a client may keep the server waiting while others wait
_PAUSE_SECONDS = 0.05


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

"""Ports for programs that a test starts a moment later: no other test, and no connection, takes one meanwhile."""

import os
import socket

# Below the ports that systems give to connections (32768 on Linux, 49152 elsewhere), where nobody gets one by chance.
# Each of pytest's workers has its own thousand; the process' number spreads runs that follow each other.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 20
_next = os.getpid() % 1000


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens, given to this process once in a thousand calls."""
    global _next
    while True:
        port = 12_000 + 1000 * _WORKER + _next
        _next = (_next + 1) % 1000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port

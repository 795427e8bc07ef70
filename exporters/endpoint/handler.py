"""The endpoint of the fault handler: its own metrics, and the events it published."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from asd.event import Event
from asd.exporters.endpoint.server import MetricsServer, start_server
from asd.exporters.metrics.handler import HandlerCollector
from asd.handler.tally import HandlerTally

__all__ = ["serve_handler"]


def serve_handler(tally: HandlerTally, events: Callable[[], Sequence[Event]], address: str, port: int) -> MetricsServer:
    """Starts to serve; the caller closes what is returned.

    Args:
        tally: What the handler did.
        events: The last events that it published, oldest first.
        address: Where to serve.
        port: 0 picks a free one.

    Raises:
        ConfigError: The port can't be had.
    """
    registry = CollectorRegistry()
    registry.register(HandlerCollector(tally))
    return start_server(registry=registry, ledger_events=events, ready=lambda: "", address=address, port=port)

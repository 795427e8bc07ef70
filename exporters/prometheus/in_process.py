"""Metrics from the training process itself: one endpoint a process, for one rank and for development.

Many ranks of a node are better served by `asd exporter`, which outlives them. The endpoint lives in threads of its own;
the training only leaves its events in a ledger and remembers where its counts are.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from asd.config import Config
from asd.errors import ConfigError
from asd.event import Event
from asd.handler.ledger import Ledger
from asd.origin import Origin
from asd.rules.step.delivery import Sink
from asd.rules.step.monitor import Monitor
from asd.rules.step.status import Status

if TYPE_CHECKING:
    from asd.exporters.http.server import HttpServer

__all__ = ["Endpoint", "MetricsSink", "open_metrics"]

_MOST_EVENTS = 1000  # that are shown
_MOST_TRAININGS = 16  # of one process, whose counts are shown


class Endpoint:
    """What this process serves: the trainings it has seen, and what their events add up to.

    Args:
        config: Address and port.

    Attributes:
        ledger: What the events add up to.
        events: The last ones.
        server: The running server.

    Raises:
        ConfigError: The address or port can't be used.
    """

    def __init__(self, config: Config) -> None:
        from prometheus_client import CollectorRegistry

        from asd.exporters.http.routes import start_server
        from asd.exporters.prometheus.collector import AsdCollector

        self.ledger = Ledger()
        self.events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._statuses: dict[Origin, Status] = {}
        registry = CollectorRegistry()
        registry.register(AsdCollector(self.statuses, self.ledger))
        self.server: HttpServer = start_server(
            registry=registry,
            ledger_events=lambda: list(self.events),
            ready=lambda: "",
            address=config.metrics_address,
            port=config.metrics_port,
        )

    def show(self, origin: Origin, status: Status) -> None:
        """Shows `status` from now on; it may change while it is shown."""
        if self._statuses.get(origin) is not status:
            self._statuses.pop(origin, None)
            self._statuses[origin] = status
            if len(self._statuses) > _MOST_TRAININGS:
                del self._statuses[next(iter(self._statuses))]

    def statuses(self) -> list[Status]:
        """The counts as they are now, safe from the training that goes on; for the server's threads."""
        # Each copy is one step of the interpreter, so no lock can ever hold the training up.
        return [
            replace(
                status,
                anomalies=status.anomalies.copy(),
                dropped=status.dropped.copy(),
                ratios=status.ratios.copy(),
                checkpoints=status.checkpoints.copy(),
            )
            for status in tuple(self._statuses.values())
        ]


class MetricsSink:
    """Shows one training at an endpoint.

    Args:
        endpoint: Where.
        origin: Which training.
    """

    def __init__(self, endpoint: Endpoint, origin: Origin) -> None:
        self.endpoint = endpoint
        self._origin = origin
        # Every series exists before the first step, so that the first anomaly is seen to be one more.
        endpoint.show(origin, Status(origin=origin, machine=socket.gethostname(), pid=os.getpid()))

    def __call__(self, event: Event) -> None:
        """Counts `event`."""
        if self.endpoint.ledger.add(event):
            self.endpoint.events.append(event)

    def after_step(self, monitor: Monitor, events: Sequence[Event]) -> None:  # noqa: ARG002 - the signature of a sink
        """Remembers where the counts are."""
        self.endpoint.show(self._origin, monitor.status)


_endpoints: dict[tuple[int, str, int], Endpoint] = {}
"""The endpoints of this process, which all its trainings share; of its parent, too, after a fork."""
_lock = threading.Lock()


def open_metrics(config: Config, origin: Origin) -> Sink:
    """Factory for the entry-point group `asd.sinks`; with `ASD_METRICS_PORT` off a sink that does nothing.

    Raises:
        ConfigError: The address or port can't be used.
    """
    if not config.metrics_port:
        return _ignore
    key = (os.getpid(), config.metrics_address, config.metrics_port)
    with _lock:
        if key not in _endpoints:
            _endpoints[key] = _open(config)
        return MetricsSink(_endpoints[key], origin)


def _open(config: Config) -> Endpoint:
    try:
        return Endpoint(config)
    except ConfigError as error:
        if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:
            raise
        raise ConfigError(
            "ASD_METRICS_PORT",
            config.metrics_port,
            f"the port is in use at {config.metrics_address}; only one process of a node can have it, so for several "
            "ranks leave it unset and run `asd exporter` on the node",
        ) from error


def _ignore(event: Event) -> None:
    """Does nothing."""

"""The events of a training to a collector, from the training itself; the logs in the run folder stay what counts.

A training never waits for it: events go into a queue of 2,048, and a thread sends them. What does not fit, and what a
collector that is away did not get in time, is lost here; the agent's outlet sends everything.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import TYPE_CHECKING

from asd.announce.delivery import Sink
from asd.config import Config
from asd.errors import UnsupportedError
from asd.event import Event
from asd.measured.origin import Origin

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider

__all__ = ["OtlpSink", "open_otlp"]

_DELAY_MILLIS = 1000
_TRY_SECONDS = 3.0  # so long a collector that is away may keep the end of a training waiting, and each try


class OtlpSink:
    """Sends events.

    Args:
        provider: OpenTelemetry's, which sends in a thread of its own.
    """

    def __init__(self, provider: LoggerProvider) -> None:
        self._logger = provider.get_logger("asd")

    def __call__(self, event: Event) -> None:
        """Puts `event` into the queue."""
        from asd.exporters.otlp.records import log_record

        self._logger.emit(log_record(event))


_providers: dict[tuple[int, str], LoggerProvider] = {}
"""One a process, which all its trainings share."""
_lock = threading.Lock()


def open_otlp(config: Config, origin: Origin) -> Sink:
    """Factory for the entry-point group `asd.sinks`; without `ASD_OTLP` a sink that does nothing.

    Raises:
        UnsupportedError: The SDK of OpenTelemetry is not installed.
    """
    if not config.otlp:
        return _ignore
    with _lock:
        key = (os.getpid(), config.otlp)
        if key not in _providers:
            _providers[key] = _open(config.otlp, origin)
        return OtlpSink(_providers[key])


def _open(url: str, origin: Origin) -> LoggerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        from asd.exporters.otlp.records import endpoint, resource
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"ASD_OTLP needs {error.name}, which is not installed; pip install 'mindspore-asd[otlp]' brings it."
        ) from None
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a collector that is away is not the training's
    provider = LoggerProvider(resource(origin.host, **{"process.pid": str(os.getpid())}), shutdown_on_exit=False)
    exporter = OTLPLogExporter(endpoint(url, "logs"), timeout=_TRY_SECONDS)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter, schedule_delay_millis=_DELAY_MILLIS))
    atexit.register(_end, provider)
    return provider


def _end(provider: LoggerProvider) -> None:
    """Sends what is left, if that can be done soon."""
    thread = threading.Thread(target=provider.shutdown, daemon=True)
    thread.start()
    thread.join(_TRY_SECONDS)


def _ignore(event: Event) -> None:
    """Does nothing."""

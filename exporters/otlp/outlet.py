"""From the agent of a node to a collector: every event that the agent keeps, in order, and its metrics.

How far events were taken is in a file beside the agent's state. It is written after the collector said yes, so whoever
is killed or away, none is lost; the last ones may come twice, with the same `cloudevents.event_id`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from prometheus_client.registry import Collector

from asd.errors import ConfigError, StateError, UnsupportedError
from asd.event import Event
from asd.rundir.disk import write_whole

__all__ = ["OtlpOutlet"]

_AT_ONCE = 500
_LOOK_SECONDS = 1.0
_METRICS_SECONDS = 15.0
_PAUSE_SECONDS = 5.0
_TRY_SECONDS = 10.0


class _Page(Protocol):
    @property
    def events(self) -> Sequence[str]: ...
    @property
    def cursor(self) -> str: ...


class _Journal(Protocol):
    def page(self, after: Sequence[str], limit: int) -> _Page: ...


class OtlpOutlet:
    """Sends from when it is made until `close`, in a thread of its own.

    Args:
        url: Address of the collector, for example `http://127.0.0.1:4318`.
        metrics: The agent's metrics.
        journal: The agent's events.
        cursor_file: Where it keeps how far it has sent them.
        host: The node; this machine when empty.
        on_failure: Is called with a sentence when the collector does not take something.

    Raises:
        ConfigError: `url` is no http or https address.
        UnsupportedError: The SDK of OpenTelemetry is not installed.
    """

    def __init__(
        self, url: str, metrics: Collector, journal: _Journal, cursor_file: Path, host: str,
        on_failure: Callable[[str], None],
    ) -> None:  # fmt: skip
        _check(url)
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            from asd.exporters.otlp.records import endpoint, resource
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                f"--otlp needs {error.name}, which is not installed; pip install 'mindspore-asd[otlp]' brings it."
            ) from None
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what fails is said by `on_failure`, once
        self._url, self._metrics, self._journal, self._cursor_file = url, metrics, journal, cursor_file
        self._on_failure = on_failure
        self._resource = resource(host)
        self._logs = OTLPLogExporter(endpoint(url, "logs"), timeout=_TRY_SECONDS)
        self._numbers = OTLPMetricExporter(endpoint(url, "metrics"), timeout=_TRY_SECONDS)
        self._since = time.time()
        self._cursor = self._read_cursor()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asd-otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sends once more what is there, unless the collector is away, and ends."""
        self._stop.set()
        self._thread.join(_TRY_SECONDS)
        self._logs.shutdown()  # type: ignore[no-untyped-call]
        self._numbers.shutdown()

    def _run(self) -> None:
        due = 0.0
        while True:
            last = self._stop.is_set()
            works = self._send_events()
            if works and (last or time.monotonic() >= due):
                due = time.monotonic() + _METRICS_SECONDS
                works = self._send_metrics()
            if last:
                return
            self._stop.wait(_LOOK_SECONDS if works else _PAUSE_SECONDS)

    def _send_events(self) -> bool:
        """Sends all that is new; returns whether the collector took it."""
        from opentelemetry.sdk._logs.export import LogRecordExportResult

        from asd.exporters.otlp.records import readable

        while True:
            try:
                page = self._journal.page([self._cursor], _AT_ONCE)
                if not page.events:
                    return True
                records = [readable(Event.from_json(text), self._resource) for text in page.events]
                if self._logs.export(records) is not LogRecordExportResult.SUCCESS:
                    return self._failed("events")
                write_whole(self._cursor_file, page.cursor.encode())
            except (StateError, OSError) as error:
                self._on_failure(f"the events for the collector at {self._url}: {error}")
                return False
            self._cursor = page.cursor

    def _send_metrics(self) -> bool:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from asd.exporters.otlp.records import metrics_data

        data = metrics_data(self._metrics.collect(), self._resource, self._since, time.time())
        return self._numbers.export(data) is MetricExportResult.SUCCESS or self._failed("metrics")

    def _failed(self, what: str) -> bool:
        self._on_failure(f"the collector at {self._url} takes no {what}; they are sent again.")
        return False

    def _read_cursor(self) -> str:
        try:
            return self._cursor_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError("--otlp", url, "it must be an http or https address such as http://127.0.0.1:4318")

"""What an event and a metric become in OpenTelemetry's data model."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LogRecordLimits, ReadableLogRecord
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family

from asd.event import LEVEL_NAMES, Event
from asd.verdict import Level

__all__ = ["endpoint", "log_record", "metrics_data", "readable", "resource"]

_SEVERITIES = {Level.ERROR: SeverityNumber.ERROR, Level.WARNING: SeverityNumber.WARN, Level.NORMAL: SeverityNumber.INFO}
_TYPE = "org.mindspore.asd"
_SCOPE = InstrumentationScope("asd")
_FIELDS = (
    "run", "rank", "step", "checkpoint", "kind", "rule", "feature", "reason", "refused", "code", "micro_batch",
    "verdict", "evidence", "assertion",
)  # fmt: skip


def endpoint(url: str, signal: str) -> str:
    """Where a collector at `url` takes `signal`: `logs` or `metrics`.

    >>> endpoint("http://collector:4318/", "logs")
    'http://collector:4318/v1/logs'
    """
    return f"{url.rstrip('/')}/v1/{signal}"


def resource(host: str, **more: str) -> Resource:
    """What everything of one process has in common."""
    try:
        own = version("mindspore-asd")
    except PackageNotFoundError:
        own = "unknown"
    return Resource.create({"service.name": "asd", "service.version": own, "host.name": host, **more})


def log_record(event: Event) -> LogRecord:
    """`event` as a log record; its attribute `cloudevents.event_id` tells one that comes twice."""
    attributes: dict[str, str | int | float | bool | list[float]] = {
        f"asd.{name}": getattr(event, name) for name in _FIELDS if getattr(event, name) != ""
    }
    attributes |= {
        "cloudevents.event_id": event.id,
        "host.name": event.host,
        "asd.device": event.device,
        "asd.level": LEVEL_NAMES[event.level],
        "asd.value": event.value,
        "asd.limits": [float(limit) for limit in event.limits],
    }
    return LogRecord(
        timestamp=round(event.time * 1e6) * 1000,
        observed_timestamp=time.time_ns(),
        severity_number=_SEVERITIES[event.level],
        severity_text=event.level.name,
        body=event.sentence(),
        attributes=attributes,
        event_name=f"{_TYPE}.{event.kind}",
    )


def readable(event: Event, of: Resource) -> ReadableLogRecord:
    """The same, ready to be sent."""
    return ReadableLogRecord(log_record(event), of, _SCOPE, LogRecordLimits())


def metrics_data(families: Iterable[Family], of: Resource, since: float, now: float) -> MetricsData:
    """Metrics as Prometheus sees them; a collector that serves them to Prometheus gives them the same names.

    Args:
        families: The metrics.
        of: Whose.
        since: Since when counters count, in seconds since the epoch.
        now: When they were read.
    """
    times = int(since * 1e9), int(now * 1e9)
    metrics = [metric for family in families for metric in _metric(family, times)]
    scope = ScopeMetrics(scope=_SCOPE, metrics=metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource=of, scope_metrics=[scope], schema_url="")])


def _metric(family: Family, times: tuple[int, int]) -> list[Metric]:
    cumulative = AggregationTemporality.CUMULATIVE
    data: Gauge | Sum | Histogram
    if family.type == "histogram":
        data = Histogram(_histograms(family, times), cumulative)
    else:
        suffix = "_total" if family.type == "counter" else ""
        samples = [sample for sample in family.samples if sample.name == f"{family.name}{suffix}"]
        points = [NumberDataPoint(dict(each.labels), *times, each.value) for each in samples]
        data = Sum(points, cumulative, is_monotonic=True) if family.type == "counter" else Gauge(points)
    if not data.data_points:
        return []
    return [Metric(family.name, family.documentation, family.unit, data)]


def _histograms(family: Family, times: tuple[int, int]) -> list[HistogramDataPoint]:
    """One for each set of labels; Prometheus counts what is up to a bound, OpenTelemetry what is between two."""
    found: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        if sample.name == f"{family.name}_bucket":
            found.setdefault(labels, {})[_bound(sample.labels)] = sample.value
        elif sample.name == f"{family.name}_sum":
            sums[labels] = sample.value
    points = []
    for labels, counts in found.items():
        bounds = sorted(counts)
        upto = [int(counts[bound]) for bound in bounds]
        between = [count - before for count, before in zip(upto, [0, *upto], strict=False)]
        points.append(
            HistogramDataPoint(
                attributes=dict(labels), start_time_unix_nano=times[0], time_unix_nano=times[1], count=upto[-1],
                sum=sums.get(labels, 0.0), bucket_counts=between, explicit_bounds=bounds[:-1], min=math.inf,
                max=-math.inf,
            )
        )  # fmt: skip
    return points


def _bound(labels: Mapping[str, str]) -> float:
    return float(labels["le"])

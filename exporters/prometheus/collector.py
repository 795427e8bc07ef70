"""Metrics for Prometheus, from the statuses of the ranks and the ledger of events.

A rank has twenty-one series, at 0 from the start, because Prometheus does not count a counter that first appears at 1
as increased. Lost events, verdicts and unjudged updates have series once there are some. Every series of a rank has the
labels `run`, `node`, `rank`, and `id`, the device's number, which joins it with the series of npu-exporter.
"""

import platform
import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

import asd
from asd.exporters.ledger import Ledger
from asd.exporters.prometheus.device_map import DeviceMap, name_device
from asd.exporters.prometheus.rows import LABELS, LEVELS, RankRow, clean, make_rows
from asd.handler import Policy
from asd.judge.status import Status

_STATUS_COUNTERS = (
    ("asd_steps_total", "steps", "Training steps judged."),
    ("asd_checks_total", "checks", "Feature values judged."),
    ("asd_nonfinite_values_total", "non_finite", "Feature values that were not finite."),
    ("asd_refused_updates_total", "refused", "Updates kept away from the weights."),
    ("asd_healed_total", "healed", "Faults that did no harm: the step was re-run, or a bit of memory put back."),
    ("asd_detector_problems_total", "problems", "Failures of the detector itself."),
    ("asd_evidence_dropped_total", "evidence_dropped", "Evidence that was not kept."),
    ("asd_step_seconds_total", "step_seconds", "Time of the training steps, in seconds."),
    ("asd_check_seconds_total", "check_seconds", "Time of detection between these steps on the host, in seconds."),
)
_STATUS_GAUGES = (
    ("asd_step", "step", "The last judged training step."),
    (
        "asd_last_check_timestamp_seconds",
        "last_check",
        "When a value was last judged, in seconds since the epoch; 0 before the first.",
    ),
    ("asd_status_timestamp_seconds", "written", "When the rank last wrote its counts, in seconds since the epoch."),
)
"""Name, field of the status, and help text."""

_EVENT_GAUGES: tuple[tuple[str, str, Callable[[RankRow], float]], ...] = (
    (
        "asd_strikes_in_window",
        "Strikes of the device in the last {minutes:g} minutes, in all runs, without those due to software.",
        lambda row: row.record.strikes,
    ),
    (
        "asd_device_suspect",
        "1 when its strikes are {strikes} or more, so that the fault handler isolates it.",
        lambda row: row.record.suspect,
    ),
    ("asd_device_isolated", "1 while the device is isolated.", lambda row: row.record.isolated),
    (
        "asd_last_anomaly_timestamp_seconds",
        "When the last anomaly was, in seconds since the epoch; 0 before the first.",
        lambda row: row.counts.last_anomaly,
    ),
)


class AsdCollector(Collector):
    """Collector that makes the metrics for each scrape; register it with `registry.register`.

    The cost of a scrape does not depend on the number of events. Any thread may scrape.

    Args:
        statuses: Returns the statuses of the ranks. If two have the same labels, the later one counts. Each of their
            checkpoints gets two series.
        ledger: Totals of the events; ranks that are known from events only have no other series.
        alive: Returns whether the process of a status exists.
        devices: Returns the other names of a device.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        statuses: Callable[[], Sequence[Status]],
        ledger: Ledger,
        *,
        alive: Callable[[Status], bool] = lambda _status: True,
        devices: DeviceMap = name_device,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.statuses = statuses
        self.ledger = ledger
        self.alive = alive
        self.devices = devices
        self.clock = clock
        self._build = (asd.__version__, platform.python_version())

    def describe(self) -> Iterable[Metric]:
        """Yields every family without samples: registering is quick, and a scrape may select some by `name[]`."""
        for family in self._families(()):
            family.samples.clear()
            yield family

    def collect(self) -> Iterable[Metric]:
        """Yields every family with its samples."""
        return self._families(make_rows(self.statuses(), self.ledger, self.devices, self.clock()))

    def _families(self, rows: Sequence[RankRow]) -> Iterable[Metric]:
        yield self._build_info()
        yield from _rank_families(rows, self.alive)
        yield from _status_families([(row.labels, row.status) for row in rows if row.status is not None])
        yield from _event_families(rows, self.ledger.policy)
        yield from _checkpoint_families(rows)

    def _build_info(self) -> Metric:
        family = GaugeMetricFamily("asd_build_info", "Always 1; labels are versions.", labels=("version", "python"))
        family.add_metric(self._build, 1)
        return family


def _rank_families(rows: Sequence[RankRow], alive: Callable[[Status], bool]) -> Iterable[Metric]:
    info = GaugeMetricFamily(
        "asd_rank_info", "Always 1; labels are names of the rank's device.", labels=(*LABELS, "device", "vdie_id")
    )
    active = GaugeMetricFamily("asd_training_active", "1 while a training runs.", labels=LABELS)
    lost = GaugeMetricFamily("asd_rank_lost", "1 when the process ended without a final status.", labels=LABELS)
    unjudged = GaugeMetricFamily("asd_training_unjudged", "1 if the updates are not judged.", labels=LABELS)
    for row in rows:
        if row.status is not None:
            info.add_metric((*row.labels, row.device, row.vdie_id), 1)
            runs, lives = row.status.active, alive(row.status)
            active.add_metric(row.labels, runs and lives)
            lost.add_metric(row.labels, runs and not lives)
            if row.status.unjudged:
                unjudged.add_metric(row.labels, 1)
    yield from (info, active, lost, unjudged)


def _status_families(known: Sequence[tuple[tuple[str, ...], Status]]) -> Iterable[Metric]:
    for family, fields in ((GaugeMetricFamily, _STATUS_GAUGES), (CounterMetricFamily, _STATUS_COUNTERS)):
        for name, field, text in fields:
            metric = family(name, text, labels=LABELS)
            for labels, status in known:
                metric.add_metric(labels, getattr(status, field))
            yield metric
    dropped = CounterMetricFamily(
        "asd_events_dropped_total", "Events and steps that a sink could not take.", labels=(*LABELS, "sink")
    )
    for labels, status in known:
        for sink, count in status.dropped.items():
            dropped.add_metric((*labels, clean(sink)), count)
    yield dropped


def _event_families(rows: Sequence[RankRow], policy: Policy) -> Iterable[Metric]:
    anomalies = CounterMetricFamily(
        "asd_anomalies_total", "Values that broke a limit of the first or second level.", labels=(*LABELS, "level")
    )
    verdicts = CounterMetricFamily("asd_replay_verdicts_total", "Replays, by verdict.", labels=(*LABELS, "verdict"))
    for row in rows:
        for level in LEVELS:
            last = row.counts.last_events.get(level)
            exemplar = None if last is None else Exemplar({"event_id": last[0]}, 1, last[1])
            anomalies.add_metric((*row.labels, level), row.anomalies(level), exemplar=exemplar)
        for verdict, count in row.counts.verdicts.items():
            if count:
                verdicts.add_metric((*row.labels, verdict), count)
    yield from (anomalies, verdicts)
    for name, text, get in _EVENT_GAUGES:
        about = text.format(strikes=policy.strikes, minutes=policy.window_seconds / 60)
        gauge = GaugeMetricFamily(name, about, labels=LABELS)
        for row in rows:
            gauge.add_metric(row.labels, get(row))
        yield gauge


def _checkpoint_families(rows: Sequence[RankRow]) -> Iterable[Metric]:
    labels = (*LABELS, "checkpoint")
    values = GaugeMetricFamily("asd_feature_value", "Last feature value of a chosen checkpoint.", labels=labels)
    limits = GaugeMetricFamily("asd_feature_limit", "The first-level limit of that value.", labels=labels)
    for row in rows:
        checkpoints = {} if row.status is None else row.status.checkpoints
        for name, (value, limit) in {clean(name): pair for name, pair in checkpoints.items()}.items():
            values.add_metric((*row.labels, name), value)
            limits.add_metric((*row.labels, name), limit)
    yield from (values, limits)

"""Rows of the metrics, one per rank: its labels, its counts, and the totals of its events."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from asd.exporters.ledger import Ledger, RankCounts
from asd.exporters.prometheus.device_map import DeviceMap
from asd.handler.device_record import DeviceRecord
from asd.judge.status import Status
from asd.origin import Origin

LABELS = ("id", "node", "rank", "run")
LEVELS = ("first", "second")
_LONGEST = 1000  # characters of a label


class RankRow(NamedTuple):
    """Row of a rank of a run."""

    labels: tuple[str, ...]  # values of `LABELS`
    device: str  # name of the device in its events
    vdie_id: str  # name of the device by its manufacturer; empty when it is not known
    status: Status | None  # counts of the rank; None when it is known from events only
    counts: RankCounts  # totals of its events
    record: DeviceRecord  # record of its device, over all runs

    def anomalies(self, level: str) -> int:
        """Returns the anomalies of a level, `first` or `second`.

        Events of an earlier process of this run are in the ledger only; events lost to a full disk are in the status
        only.
        """
        return max(self.counts.anomalies[level], self.status.anomalies.get(level, 0) if self.status is not None else 0)


def clean(text: str) -> str:
    """Returns `text` as the value of a label, without characters for which Prometheus would refuse the scrape."""
    if len(text) <= _LONGEST and text.isascii() and "\0" not in text:  # nearly all
        return text
    return text[:_LONGEST].encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def nearest(checkpoints: Mapping[str, tuple[float, float]], most: int) -> dict[str, tuple[float, float]]:
    """Returns the checkpoints that are nearest to their limit, by name."""
    by_ratio = sorted(checkpoints, key=lambda name: (-_ratio(*checkpoints[name]), name))
    return {name: checkpoints[name] for name in sorted(by_ratio[:most])}


def _ratio(value: float, limit: float) -> float:
    """Returns `value` / `limit`: 1 is at the limit; infinite for a value that is not finite."""
    if not math.isfinite(value):
        return math.inf
    if math.isinf(limit):
        return 0.0
    return value / limit if limit > 0 else math.inf


def make_rows(statuses: Iterable[Status], ledger: Ledger, devices: DeviceMap, now: float) -> list[RankRow]:
    """Returns the rows of all ranks; no two have the same labels.

    Args:
        statuses: Statuses; of two for the same rank the one written last counts.
        ledger: Adds the ranks that are known from events only.
        devices: Returns the other names of a device.
        now: Seconds since the epoch.
    """
    rows: dict[tuple[str, ...], RankRow] = {}
    newest: dict[Origin, Status] = {}
    for status in statuses:
        key = status.origin
        if key not in newest or newest[key].written <= status.written:
            newest[key] = status
    counts, records = ledger.counts(), ledger.records(now)
    for key in dict.fromkeys((*newest, *counts)):
        names = devices(key.host, key.device)
        labels = (clean(names.id), clean(key.host), str(key.rank), clean(key.run))
        row = RankRow(
            labels,
            clean(key.device),
            clean(names.vdie_id),
            newest.get(key),
            counts.get(key) or RankCounts(),
            records.get((key.host, key.device), DeviceRecord(key.host, key.device, key.rank)),
        )
        if labels not in rows or _last(row) >= _last(rows[labels]):  # as of devices `NPU:3` and `Ascend:3`
            rows[labels] = row
    return list(rows.values())


def _last(row: RankRow) -> float:
    return max(row.status.written if row.status else 0.0, row.counts.last_anomaly)

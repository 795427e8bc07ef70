"""One row per rank: its labels, what it counted, and what the events say about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from asd.exporters.prometheus.device_map import DeviceMap
from asd.handler.device_record import DeviceRecord
from asd.handler.ledger import Ledger, RankCounts
from asd.origin import Origin
from asd.rules.step.status import Status
from asd.rules.step.strikes import device_key

__all__ = ["LABELS", "LEVELS", "RankRow", "clean", "make_rows"]

LABELS = ("id", "node", "rank", "run")
LEVELS = ("first", "second")
_LONGEST = 1000  # characters of a label


class RankRow(NamedTuple):
    """A rank of a run.

    Attributes:
        labels: Values of `LABELS`.
        device: As in `asd.Event`.
        vdie_id: What the device's maker calls it; empty when it is not known.
        status: What the rank counted; None when it is known from events only.
        counts: What its events add up to.
        record: Its device, in whatever run.
    """

    labels: tuple[str, ...]
    device: str
    vdie_id: str
    status: Status | None
    counts: RankCounts
    record: DeviceRecord

    def anomalies(self, level: str) -> int:
        """Anomalies of a level, `first` or `second`.

        The events of an earlier process of this run are in the ledger only, and those that a full disk kept from the
        log are in the status only.
        """
        counted = self.status.anomalies.get(level, 0) if self.status is not None else 0
        return max(self.counts.anomalies[level], counted)


def clean(text: str) -> str:
    """`text` as the value of a label: without what Prometheus refuses, which would cost it the whole scrape."""
    if len(text) <= _LONGEST and text.isascii() and "\0" not in text:  # nearly all
        return text
    return text[:_LONGEST].encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def make_rows(statuses: Iterable[Status], ledger: Ledger, devices: DeviceMap, now: float) -> list[RankRow]:
    """The rows of all ranks; no two have the same labels.

    Args:
        statuses: Of two for the same rank the one written last is taken.
        ledger: Adds the ranks that are known from events only.
        devices: Tells the other names of a device.
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
        unknown = DeviceRecord(key.host, key.device, key.rank)
        row = RankRow(
            labels,
            clean(key.device),
            clean(names.vdie_id),
            newest.get(key),
            counts.get(key) or RankCounts(),
            records.get(device_key(key.host, key.device, key.rank), unknown),
        )
        rows[labels] = _merged(rows[labels], row) if labels in rows else row
    return list(rows.values())


def _merged(one: RankRow, other: RankRow) -> RankRow:
    """Two devices of one rank whose names give the same labels, for example `NPU:3` and `Ascend:3`."""
    told = [row for row in (one, other) if row.status is not None]
    kept = max(told, key=lambda row: row.status.written if row.status else 0.0) if told else one
    later, earlier = sorted((one.counts, other.counts), key=lambda counts: counts.last_anomaly, reverse=True)
    counts = replace(
        later,
        anomalies={level: later.anomalies[level] + earlier.anomalies[level] for level in LEVELS},
        strikes=later.strikes + earlier.strikes,
        verdicts={verdict: later.verdicts[verdict] + earlier.verdicts[verdict] for verdict in later.verdicts},
        last_events={**earlier.last_events, **later.last_events},
    )
    both = (one.record, other.record)
    worse = max(both, key=lambda record: record.strikes)
    isolated = any(record.isolated for record in both)
    return kept._replace(counts=counts, record=replace(worse, state="isolated") if isolated else worse)

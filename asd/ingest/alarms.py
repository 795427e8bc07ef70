"""Makes events of the alarms in lines of a log; times there are mostly local, and some have no zone or no year."""

import hashlib
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from asd.event import Event
from asd.ingest.alarm_patterns import read
from asd.ingest.log_line import LogFinding, device_of_path, messages, rank_of_path
from asd.origin import Origin
from asd.rundir.follow import Line

_LAST = 253402214400.0  # times from here on, the last day of the year 9999, can't be written as a date everywhere

_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATE = r"(?<!\d)(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)"
_VENDOR = re.compile(rf"{_DATE}-{_CLOCK}(?:\.(?P<fraction>\d{{3}}(?:\.\d{{3}})?))?", re.ASCII)
_ISO = re.compile(
    rf"{_DATE}[T ]+{_CLOCK}(?:[.,](?P<fraction>\d{{1,9}}))?\s?(?P<zone>Z\b|[+-]\d\d:?\d\d(?!\d))?", re.ASCII
)
_SYSLOG = re.compile(
    rf"\b(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK}"
    r"(?: (?P<year>\d{4})\b)?",
    re.ASCII,
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EARLY = timedelta(days=1)  # a clock may be ahead by this much before a date counts as last year's
_NPU = re.compile(r"\s*(NPU ID|Chip Count)\s*:\s*([0-9]{1,4})\s*", re.ASCII)


class Alarms:
    """Reads lines of all sources; of each file it remembers the last NPU that npu-smi printed, and nothing else.

    Lines that name no machine are of `host`, and those without a time of the clock's.
    """

    def __init__(self, host: str, *, clock: Callable[[], float] = time.time) -> None:
        self._host, self._clock = host, clock
        self._npus: dict[Path, str] = {}

    def read(self, line: Line) -> list[Event]:
        """Returns the alarms in `line`; nearly always none."""
        if match := _NPU.fullmatch(line.text):
            if match[1] == "NPU ID":
                self._npus[line.path] = f"Ascend:{int(match[2])}"
            elif int(match[2]) > 1:  # which of them it is stands behind the code, and a wrong device is worse than none
                self._npus[line.path] = self._npus.get(line.path, "").replace(":", " card ")
        found = [(message, finding) for message in messages(line.text) for finding in read(message)]
        return [self._event(line, message, finding, number) for number, (message, finding) in enumerate(found)]

    def _event(self, line: Line, message: str, finding: LogFinding, number: int) -> Event:
        ranks = (finding.rank, rank_of_path(line.path), -1)
        now = self._clock()
        when = finding.time if 0 < finding.time < _LAST else _read_time(message, now)
        # A file may have inode and first line of one that was deleted, and a line with a time may be in a copy as well.
        digest = hashlib.sha256(line.text.encode(errors="replace")).hexdigest()[:16]
        place = digest if when is not None else f"{line.key}:{digest[:8]}"
        key = f"{place}+{number}" if number else place
        device = finding.device or self._npus.get(line.path) or device_of_path(line.path) or "unknown"
        rank = next(rank for rank in ranks if rank is not None)
        same = ("step", "value", "level", "kind", "rule", "feature", "reason", "code")
        return Event(
            origin=Origin("ingest", rank, finding.host[:512] or self._host, device),
            checkpoint=finding.checkpoint[:512],  # the longest name that is read again
            limits=(),
            refused=False,
            time=now if when is None else when,
            key=key,
            recovered_by="vendor" if finding.kind == "recovery" else "",
            **{name: getattr(finding, name) for name in same},
        )


def _read_time(text: str, now: float) -> float | None:
    """Returns the time that a line begins with, in seconds since the epoch; None when it has none.

    The vendor's form, to the microsecond, goes before what a container runtime or syslog puts in front. A time without
    a zone is of this machine's, and a date without a year the last such date before `now`.
    """
    for pattern in (_VENDOR, _ISO, _SYSLOG):
        match = pattern.search(text)
        found = None if match is None else _epoch(match.groupdict(), now)
        if found is not None:
            return found
    return None


def _epoch(parts: dict[str, str | None], now: float) -> float | None:
    month = _MONTHS.index(parts["name"]) + 1 if parts.get("name") else int(parts["month"] or 0)
    digits = (parts.get("fraction") or "").replace(".", "")[:6].ljust(6, "0")
    try:
        zone = datetime.strptime(parts["zone"] or "", "%z").tzinfo if parts.get("zone") else None
        latest = datetime.fromtimestamp(now, zone) + _EARLY
        clock = (parts["day"], parts["hour"], parts["minute"], parts["second"], digits)
        day, hour, minute, second, microsecond = (int(number or 0) for number in clock)
        found = datetime(int(parts["year"] or latest.year), month, day, hour, minute, second, microsecond, zone)
        if parts["year"] is None and found > latest:
            found = found.replace(year=found.year - 1)
        seconds = found.timestamp()
    except (ValueError, OverflowError, OSError):  # no such day, or no such zone
        return None
    return seconds if 0 <= seconds < _LAST else None

"""Times as logs print them: mostly local, without a zone, sometimes without a year."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

LAST = 253402214400.0
"""Times from here on, the last day of the year 9999, can't be written as a date everywhere."""

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


def read_time(text: str, now: float) -> float | None:
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
    return seconds if 0 <= seconds < LAST else None

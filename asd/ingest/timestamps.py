"""Times as logs print them: mostly local, without a zone, sometimes without a year."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo

__all__ = ["LAST", "read_time"]

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


def read_time(text: str, zone: tzinfo | None, now: Callable[[], float]) -> float | None:
    """The time that a line begins with, in seconds since the epoch; None when it has none.

    The vendor's form, to the microsecond, goes before what a container runtime or syslog puts in front.

    Args:
        text: The line.
        zone: Zone of the times that name none; None for this machine's.
        now: The clock; dates without a year are the last such dates.
    """
    for pattern in (_VENDOR, _ISO, _SYSLOG):
        match = pattern.search(text)
        if match is not None:
            found = _epoch(match.groupdict(), zone, now)
            if found is not None:
                return found
    return None


def _epoch(parts: dict[str, str | None], zone: tzinfo | None, now: Callable[[], float]) -> float | None:
    with contextlib.suppress(ValueError):  # no such zone
        zone = datetime.strptime(parts.get("zone") or "", "%z").tzinfo
    month = _MONTHS.index(parts["name"]) + 1 if parts.get("name") else int(parts["month"] or 0)
    digits = (parts.get("fraction") or "").replace(".", "")
    latest = datetime.fromtimestamp(now(), zone) + _EARLY
    years = [int(parts["year"])] if parts.get("year") else [latest.year - back for back in range(5)]  # type: ignore[arg-type]
    for year in years:
        try:
            found = datetime(
                year,
                month,
                int(parts["day"] or 0),
                int(parts["hour"] or 0),
                int(parts["minute"] or 0),
                int(parts["second"] or 0),
                int(digits[:6].ljust(6, "0")),
                tzinfo=zone,
            )
            seconds = found.timestamp()
        except (ValueError, OverflowError, OSError):  # no such day, for example the 29th of February
            continue
        if (parts.get("year") or found <= latest) and 0 <= seconds < LAST:
            return seconds
    return None

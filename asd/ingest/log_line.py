"""The messages in a line of a log, without what other programs put around them, and an alarm in one."""

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from asd.event import CODE
from asd.verdict import Level

_WORDS = (
    *("silent_check", "silentcheck", "strikerecord", "strikes out on rank", "checksum", "sensitivity feature abnormal"),
    *("80818c0", "sensor type", "sensor_type", "sensortype", "215597363", "npu_chip_info_error_code"),
)
"""One of these is in every alarm; nearly all lines of a log have none and are passed over at once."""

_LONGEST = 1 << 14  # characters of one alarm with everything around it
_BEFORE = 1 << 12  # of these, so many may stand before the first word
_BREAK = re.compile(r"[\r\n]|\\n")
_COLOUR = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_HEADER = re.compile(r"(?i)\[\s*(ERROR|WARNING|WARN|INFO|EVENT|DEBUG|CRITICAL|FATAL)\s*\]\s*(?:[\w.-]+\s*)?\(")
_TAG = re.compile(r"\[\s*(ERROR|WARNING|WARN|INFO|EVENT|DEBUG|CRITICAL|FATAL)\s*\]", re.IGNORECASE)
_LEVEL = re.compile(r"(?<![\w.])(ERROR|WARNING|WARN|INFO|EVENT|DEBUG|CRITICAL|FATAL)(?![\w.])", re.IGNORECASE)
_OURS = re.compile(r"\bevent=[0-9a-f]{32}\b", re.ASCII)
_DEVICE = re.compile(r"device-(\d{1,6})", re.ASCII | re.IGNORECASE)
_RANK = re.compile(r"(?:worker_|rank[_.-]?)(\d{1,9})(?:\.log(?:[.-].*)?)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """An alarm as written in a line; fields that the line does not have keep their defaults."""

    rule: str  # who raised it: `silent_check_v2`, `silent_check_v3`, `combined` or `driver`
    reason: str  # why, in a few words
    level: Level = Level.ERROR  # `Level.NORMAL` for a recovery
    kind: str = "anomaly"  # `anomaly` or `recovery`
    feature: str = ""  # what the value is: `l2` or `max_square`; empty without a value
    value: float = math.nan  # the feature value; NaN without one
    step: int = 0  # checks of the site before this one, the nearest to a step in these lines; 0 without
    checkpoint: str = ""  # name of the parameter or site, if the line has one
    rank: int | None = None  # rank it is about; None when the line does not say
    device: str = ""  # device it is about, for example `Ascend:3`; empty when the line does not say
    host: str = ""  # machine it is about; empty when the line does not say
    time: float = 0.0  # in seconds since the epoch, where it has one of its own; 0 for that of the line
    code: str = CODE  # fault code


def level_of(message: str) -> str:
    """Returns `ERROR`, `WARNING`, `INFO` and so on from the header of a message; empty without one."""
    match = _HEADER.search(message) or _TAG.search(message) or _LEVEL.search(message)
    name = match[1].upper() if match else ""
    return "WARNING" if name == "WARN" else name


def messages(text: str) -> Iterator[str]:
    """Returns the messages in one line that may be alarms, with their headers and without colours.

    There may be more than one: progress bars leave carriage returns, and a logger that writes JSON puts a message of
    several lines into one.
    """
    if not _has_word(text.lower()):
        return
    for part in _BREAK.split(_COLOUR.sub("", text)):
        message = _window(part)
        if message and not ("event=" in message and _OURS.search(message)):
            yield message


@functools.lru_cache(maxsize=1024)
def device_of_path(path: Path) -> str:
    """Returns the device whose log this is, from its folder `device-<N>`; empty without one."""
    for name in reversed(path.parts[:-1]):
        if (match := _DEVICE.fullmatch(name)) is not None:
            return f"Ascend:{int(match[1])}"
    return ""


@functools.lru_cache(maxsize=1024)
def rank_of_path(path: Path) -> int | None:
    """Returns the rank whose log this is, from `worker_<N>.log` or a folder `rank_<N>`; None without one."""
    for name in reversed(path.parts):
        if (match := _RANK.fullmatch(name)) is not None:
            return int(match[1])
    return None


def _has_word(lower: str) -> bool:
    return any(word in lower for word in _WORDS)


def _window(part: str) -> str:
    """Returns the part, cut to where the first word stands when it is very long; empty without a word."""
    lower = part.lower()
    if len(part) <= _LONGEST:
        return part if _has_word(lower) else ""
    places = [place for word in _WORDS if (place := lower.find(word)) >= 0]
    start = max(0, min(places) - _BEFORE) if places else len(part)
    return part[start : start + _LONGEST]

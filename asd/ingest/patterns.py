"""What the lines of vendors' logs mean: one table of patterns, and how the fields of each are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from asd.event import ABNORMAL, CODE
from asd.ingest.fault_codes import of_config_map, of_driver, of_health, of_plugin, of_scrape
from asd.ingest.fields import fields, number, whole
from asd.ingest.log_line import level_of
from asd.verdict import Level

__all__ = ["LogFinding", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """An alarm as it stands in a line; what the line does not say is left at its default.

    Attributes:
        rule: Who raised it: `silent_check_v2`, `silent_check_v3`, `combined` or `driver`.
        level: `Level.ERROR` for the first level, `Level.WARNING` for the second, `Level.NORMAL` for a recovery.
        reason: Why, in a few words.
        kind: `anomaly` or `recovery`.
        feature: What the value is: `l2` or `max_square`; empty without a value.
        value: The feature value; NaN without one.
        step: How many checks the site had before this one, the nearest to a step that these lines print; 0 without.
        checkpoint: Name of the parameter or site, if the line has one.
        rank: Rank it is about; None when the line does not say.
        device: Device it is about, for example `Ascend:3`; empty when the line does not say.
        host: Machine it is about; empty when the line does not say.
        time: In seconds since the epoch, where it has one of its own; 0 for that of the line.
        code: Fault code.
    """

    rule: str
    level: Level
    reason: str
    kind: str = "anomaly"
    feature: str = ""
    value: float = math.nan
    step: int = 0
    checkpoint: str = ""
    rank: int | None = None
    device: str = ""
    host: str = ""
    time: float = 0.0
    code: str = CODE


class _Pattern(NamedTuple):
    """One row of the table.

    Attributes:
        pattern: Its named group `rank` is a field of the finding.
        rule: Who prints such lines.
        reason: What it means.
        read: The other fields of each alarm in the line; empty when it is none.
    """

    pattern: re.Pattern[str]
    rule: str = ""
    reason: str = ""
    read: Callable[[str, re.Match[str]], list[dict[str, Any]]] = lambda *_: [{}]


def read(text: str) -> list[LogFinding]:
    """The alarms in one message; the first row of the table that finds some is right."""
    for row in _TABLE:
        match = row.pattern.search(text)
        found = row.read(text, match) if match is not None else []
        if match is not None and found:
            common: dict[str, Any] = {"rule": row.rule, "level": Level.ERROR, "reason": row.reason}
            common |= {"rank": int(match["rank"])} if "rank" in match.groupdict() else {}
            return [LogFinding(**{**common, **each}) for each in found]
    return []


def _silent_check(text: str, name: re.Match[str]) -> list[dict[str, Any]]:
    """The check on the chip prints `val` and its thresholds in any order, also for normal values."""
    match = _LEVEL.search(text)
    level = _LEVELS[match[1] or match[2]] if match else _HEADERS.get(level_of(text), Level.NORMAL)
    said = fields(text) if level is not Level.NORMAL else {}
    if "val" not in said:
        return []
    value = number(said["val"])
    finite = value is None or math.isfinite(value)
    level = level if finite else Level.ERROR
    version = name[1] or ("2" if "preval" in said else "3")
    reason = f"SilentCheck L{1 if level is Level.ERROR else 2}{'' if finite else ', not finite'}"
    found = {
        "rule": f"silent_check_v{version}",
        "level": level,
        "reason": reason if value is not None else f"{reason}, value not readable: {said['val']}",
        "feature": "l2" if version in ("1", "2") else "max_square",
        "value": math.nan if value is None else value,
        "step": whole(said.get("step", "")),
    }
    return [found]


def _first_generation(text: str, _match: re.Match[str]) -> list[dict[str, Any]]:
    if level_of(text) != "ERROR":
        return []
    said = fields(text)
    value = number(said.get("val", said.get("value", "")))
    found = {
        "reason": ABNORMAL if value is None or math.isfinite(value) else f"{ABNORMAL}, not finite",
        "feature": "" if value is None else "l2",
        "value": math.nan if value is None else value,
        "step": whole(said.get("step", "")),
    }
    return [found]


def _strike(text: str, match: re.Match[str]) -> list[dict[str, Any]]:
    """A value that stands out is the second level, and the first when it is not finite."""
    if _TRACES.search(text):
        return []
    body = match["body"]
    name = _NAME.search(body)
    said = fields(body[: name.start()] + body[name.end("name") :] if name else body)
    value = number(said.get("value", ""))
    if value is None:
        return []
    finite = math.isfinite(value)
    state = ", ".join(f"{label} {said[key]}" for label, key in (("mean", "avg"), ("last", "prevalue")) if key in said)
    found = {
        "level": Level.WARNING if finite else Level.ERROR,
        "reason": f"strike{'' if finite else ', not finite'}{f'; before it: {state}' if state else ''}",
        "feature": "max_square",
        "value": value,
        "step": whole(said.get("count", "")),
        "checkpoint": name["name"] if name else "",
        "time": number(said.get("timestamp", "")) or 0.0,
    }
    return [found]


def _strike_out(text: str, _match: re.Match[str]) -> list[dict[str, Any]]:
    count = _STRIKES.search(text)
    return [{"reason": f"strike-out after {count[1]} strikes" if count else "strike-out"}]


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


_LEVEL = re.compile(r"ComputeL([12])|(?<![a-z_])L([12])(?=[\s_-]*(?:err|warn|fault|alarm|abnormal))", re.IGNORECASE)
_LEVELS = {"1": Level.ERROR, "2": Level.WARNING}
_HEADERS = {"ERROR": Level.ERROR, "CRITICAL": Level.ERROR, "FATAL": Level.ERROR, "WARNING": Level.WARNING}
_NAME = re.compile(
    r"(?<![\w.])name\s*[:=]\s*(?P<name>.*?)\s*(?:,\s*(?:timestamp|value|stat)\s*[:=]|}|$)", re.IGNORECASE
)
_TRACES = _compiled("strike happened|will not be recorded")
"""Traces of a strike: the first doubles the alarm, the second says that there is none because of the cooling-off."""
_STRIKES = _compiled(r"strikes_num\s*[:=]\s*\[?(\d{1,9})")
_RANK = r"\s*[:=]?\s*\[?(?P<rank>\d{1,9})\b"

_TABLE = (
    # MindSpore's combined check. Lines that explain how to search for these have no number, so that is demanded.
    _Pattern(
        pattern=re.compile(r"StrikeRecord\s*[{(\[](?P<body>.*)", re.IGNORECASE),
        rule="combined",
        read=_strike,
    ),
    _Pattern(
        pattern=_compiled(r"strikes?\s+out\s+on\s+rank" + _RANK),
        rule="combined",
        read=_strike_out,
    ),
    _Pattern(
        pattern=_compiled(r"CheckSum\s+detects?\s+MatMul\s+errors?\s+on\s+rank" + _RANK),
        rule="combined",
        reason="checksum: wrong MatMul",
    ),
    _Pattern(
        pattern=_compiled(re.escape(ABNORMAL)),
        rule="silent_check_v1",
        read=_first_generation,
    ),
    # The check on the chip: known by its source file, or by the word SilentCheck.
    _Pattern(pattern=_compiled(r"silent_?check_?v?(\d*)"), read=_silent_check),
    # Fault codes in messages of the device plugin, and in the log of the operating system.
    _Pattern(
        pattern=re.compile(r"device fault\s*,\s*(?P<body>.*)", re.IGNORECASE),
        rule="driver",
        read=of_plugin,
    ),
    # States as people have them at hand: npu-smi's, npu-exporter's, the ConfigMap of the device plugin.
    _Pattern(pattern=_compiled(r"Error Code\s*:(?P<codes>.*)"), rule="driver", read=of_health),
    _Pattern(
        pattern=_compiled(r"npu_chip_info_error_code\w*\{(?P<labels>[^}]*)\}\s+(?P<value>\S+)"),
        rule="driver",
        read=of_scrape,
    ),
    _Pattern(pattern=_compiled("npu_name"), rule="driver", read=of_config_map),
    _Pattern(
        pattern=re.compile(r"80818c0|215597363|sensor", re.IGNORECASE),
        rule="driver",
        read=of_driver,
    ),
)

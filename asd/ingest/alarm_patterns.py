"""Patterns of lines in vendors' logs: one table, and functions that read the fields of each."""

import math
import re
from collections.abc import Callable

from asd.event import ABNORMAL
from asd.ingest.fault_codes import compiled, of_config_map, of_driver, of_health, of_plugin, of_scrape
from asd.ingest.fields import fields, number, whole
from asd.ingest.log_line import LogFinding, level_of
from asd.verdict import Level


def read(text: str) -> list[LogFinding]:
    """Returns the alarms in one message; the first row of the table that finds some is right."""
    for pattern, reader in _TABLE:
        match = pattern.search(text)
        found = reader(text, match) if match is not None else []
        if found:
            return found
    return []


def _silent_check(text: str, name: re.Match[str]) -> list[LogFinding]:
    """Reads the check on the chip, which prints `val` and its thresholds in any order, also for normal values."""
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
    found = LogFinding(
        rule=f"silent_check_v{version}",
        level=level,
        reason=reason if value is not None else f"{reason}, value not readable: {said['val']}",
        feature="l2" if version in ("1", "2") else "max_square",
        value=math.nan if value is None else value,
        step=whole(said.get("step", "")),
    )
    return [found]


def _first_generation(text: str, _match: re.Match[str]) -> list[LogFinding]:
    if level_of(text) != "ERROR":
        return []
    said = fields(text)
    value = number(said.get("val", said.get("value", "")))
    reason = ABNORMAL if value is None or math.isfinite(value) else f"{ABNORMAL}, not finite"
    feature, shown = ("", math.nan) if value is None else ("l2", value)
    step = whole(said.get("step", ""))
    return [LogFinding(rule="silent_check_v1", reason=reason, feature=feature, value=shown, step=step)]


def _strike(text: str, match: re.Match[str]) -> list[LogFinding]:
    """Reads an outlier as second level, or as first level when it is not finite."""
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
    found = LogFinding(
        rule="combined",
        level=Level.WARNING if finite else Level.ERROR,
        reason=f"strike{'' if finite else ', not finite'}{f'; before it: {state}' if state else ''}",
        feature="max_square",
        value=value,
        step=whole(said.get("count", "")),
        checkpoint=name["name"].rstrip() if name else "",
        time=number(said.get("timestamp", "")) or 0.0,
    )
    return [found]


def _of_rank(text: str, match: re.Match[str]) -> list[LogFinding]:
    """Reads a strike-out, or a wrong check sum."""
    count = _STRIKES.search(text)
    reason = f"strike-out after {count[1]} strikes" if count else "strike-out"
    reason = "checksum: wrong MatMul" if match[0].lower().startswith("checksum") else reason
    return [LogFinding(rule="combined", reason=reason, rank=int(match["rank"]))]


_LEVEL = re.compile(r"ComputeL([12])|(?<![a-z_])L([12])(?=[\s_-]*(?:err|warn|fault|alarm|abnormal))", re.IGNORECASE)
_LEVELS = {"1": Level.ERROR, "2": Level.WARNING}
_HEADERS = {"ERROR": Level.ERROR, "CRITICAL": Level.ERROR, "FATAL": Level.ERROR, "WARNING": Level.WARNING}
_NAME = re.compile(r"(?<![\w.])name\s*[:=]\s*(?P<name>.*?)(?:,\s*(?:timestamp|value|stat)\s*[:=]|}|$)", re.IGNORECASE)
_TRACES = compiled("strike happened|will not be recorded")
"""Traces of a strike: the first doubles the alarm, the second says that there is none because of the cooling-off."""
_STRIKES = compiled(r"strikes_num\s*[:=]\s*\[?(\d{1,9})")
_RANK = r"\s*(?:[:=]\s*)?\[?(?P<rank>\d{1,9})\b"

_TABLE: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], list[LogFinding]]], ...] = (
    # MindSpore's combined check. Lines that explain how to search for these have no number, so that is demanded.
    (re.compile(r"StrikeRecord\s*[{(\[](?P<body>.*)", re.IGNORECASE), _strike),
    (compiled(r"(?:strikes?\s+out|CheckSum\s+detects?\s+MatMul\s+errors?)\s+on\s+rank" + _RANK), _of_rank),
    (compiled(re.escape(ABNORMAL)), _first_generation),
    # The check on the chip: known by its source file, or by the word SilentCheck.
    (compiled(r"silent_?check_?v?(\d*)"), _silent_check),
    # Fault codes in messages of the device plugin, and in the log of the operating system.
    (re.compile(r"device fault\s*,\s*(?P<body>.*)", re.IGNORECASE), of_plugin),
    # States as people have them at hand: npu-smi's, npu-exporter's, the ConfigMap of the device plugin.
    (compiled(r"Error Code\s*:(?P<codes>.*)"), of_health),
    (compiled(r"npu_chip_info_error_code\w*\{(?P<labels>[^}]*)\}\s+(?P<value>\S+)"), of_scrape),
    (compiled("npu_name"), of_config_map),
    (re.compile(r"80818c0|215597363|sensor", re.IGNORECASE), of_driver),
)
"""Pattern of each line, and its reader, which returns the alarms in it; none where the line only looks like one."""

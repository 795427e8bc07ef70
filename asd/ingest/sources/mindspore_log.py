"""The combined check of MindSpore: strikes, strike-outs and checksums in the application logs.

A strike is a spike of one value: the second level, or the first when it is not finite. A strike-out and a wrong
checksum are the first level. Two lines only explain how to search for these ("Search 'strikes out on rank' in training
logs"): they have the same words without a number, so the number is demanded.
"""

from __future__ import annotations

import math
import re

from asd.event import ABNORMAL
from asd.ingest.sources.fields import fields, number, whole
from asd.ingest.sources.finding import LogFinding
from asd.ingest.sources.log_line import LogLine
from asd.verdict import Level

__all__ = ["read"]

_RULE = "combined"
_RECORD = re.compile(r"StrikeRecord\s*[{(\[](?P<body>.*)", re.IGNORECASE)
_NAME = re.compile(
    r"(?<![\w.])name\s*[:=]\s*(?P<name>.*?)\s*(?:,\s*(?:timestamp|value|stat)\s*[:=]|}|$)", re.IGNORECASE
)
_OUT = re.compile(r"strikes?\s+out\s+on\s+rank\s*[:=]?\s*\[?(?P<rank>\d{1,9})\b", re.IGNORECASE | re.ASCII)
_NUMBER_OF = re.compile(r"strikes_num\s*[:=]\s*\[?(\d{1,9})", re.IGNORECASE | re.ASCII)
_CHECKSUM = re.compile(
    r"CheckSum\s+detects?\s+MatMul\s+errors?\s+on\s+rank\s*[:=]?\s*\[?(?P<rank>\d{1,9})\b", re.IGNORECASE | re.ASCII
)
_GLOBAL = re.compile(r"Global\s+CheckSum\s+result\s+is\s*:?\s*\[?(?:1|true)\b", re.IGNORECASE)
_TRACES = ("strike happened", "will not be recorded")
"""Traces of a strike: the first doubles the alarm, the second says that there is none because of the cooling-off."""
_TOGETHER = 60.0  # seconds within which all ranks print the global result


def read(line: LogLine) -> LogFinding | None:
    """What the line says, if it is an alarm of the combined check, or one of the first generation."""
    if "strikerecord" in line.lower:
        return _strike(line)
    if ABNORMAL in line.lower and line.level == "ERROR":
        return _first_generation(line)
    if "strike" not in line.lower and "checksum" not in line.lower:
        return None
    if (match := _OUT.search(line.text)) is not None:
        count = _NUMBER_OF.search(line.text)
        reason = f"strike-out{f' after {count[1]} strikes' if count else ''}"
        return LogFinding(rule=_RULE, level=Level.ERROR, reason=reason, rank=int(match["rank"]))
    if (match := _CHECKSUM.search(line.text)) is not None:
        return LogFinding(rule=_RULE, level=Level.ERROR, reason="checksum: wrong MatMul", rank=int(match["rank"]))
    if _GLOBAL.search(line.text) is not None:
        reason = "checksum: wrong MatMul on a rank that is not named"
        return LogFinding(rule=_RULE, level=Level.ERROR, reason=reason, rank=-1, repeats_within=_TOGETHER)
    return None


def _strike(line: LogLine) -> LogFinding | None:
    match = _RECORD.search(line.text)
    if match is None or any(trace in line.lower for trace in _TRACES):
        return None
    body = match["body"]
    name = _NAME.search(body)
    said = fields(body[: name.start()] + body[name.end("name") :] if name else body)
    value = number(said.get("value", ""))
    if value is None:
        return None
    finite = math.isfinite(value)
    state = ", ".join(f"{label} {said[key]}" for label, key in (("mean", "avg"), ("last", "prevalue")) if key in said)
    reason = f"strike{'' if finite else ', not finite'}{f'; before it: {state}' if state else ''}"
    timestamp = number(said.get("timestamp", ""))
    return LogFinding(
        rule=_RULE,
        level=Level.WARNING if finite else Level.ERROR,
        reason=reason,
        feature="max_square",
        value=value,
        step=whole(said.get("count", "")),
        checkpoint=name["name"] if name else "",
        time=timestamp if timestamp else None,
    )


def _first_generation(line: LogLine) -> LogFinding:
    said = fields(line.text)
    value = number(said.get("val", said.get("value", "")))
    reason = ABNORMAL if value is None or math.isfinite(value) else f"{ABNORMAL}, not finite"
    return LogFinding(
        rule="silent_check_v1",
        level=Level.ERROR,
        reason=reason,
        feature="" if value is None else "l2",
        value=math.nan if value is None else value,
        step=whole(said.get("step", "")),
        device=line.device,
    )

"""The combined check of torch_npu: what its logger `torch_npu.silent_check` prints of spikes, strike-outs, checksums.

Rank 0 prints what the other ranks found once more, and a strike-out lists the spikes that led to it. So an alarm is
known by what happened (rank, time, parameter, value), not by its line: printed again it is the same event. The spikes
in the list stand on lines of their own, without the rank; that stands in the line of the strike-out above them.
"""

from __future__ import annotations

import math
import re

from asd.ingest.sources.fields import number, whole
from asd.ingest.sources.finding import LogFinding
from asd.ingest.sources.log_line import LogLine
from asd.verdict import Level

__all__ = ["STRIKE_OUT", "listed", "read"]

STRIKE_OUT = "strike-out"
_RULE = "torch_npu"
_WHEN = r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)"
_HEAD = rf"(?:\[{_WHEN}\]\s*)?\[\s*Rank\s*:?\s*(?P<rank>\w+)\s*\]\s*:?\s*"
_SPIKE = re.compile(_HEAD + r"A grad-norm spike may happen\W*(?P<body>.*)", re.IGNORECASE | re.ASCII)
_OUT = re.compile(_HEAD + r"feature detection detects? abnormal results?(?!\s*,)", re.IGNORECASE | re.ASCII)
_CHECKSUM = re.compile(_HEAD + r"The result of Matmul checksum is abnormal", re.IGNORECASE | re.ASCII)
_ITEM = re.compile(
    rf"Grad-norm spike\s*:\s*index\s*:?\s*\d+\s*,\s*time\s*:?\s*{_WHEN}\s*,\s*(?P<body>.*)", re.IGNORECASE | re.ASCII
)
_LABELS = ("param name", "abnormal value", "previous value", "history avg", "bp time", "normal count")
_LABEL = re.compile(rf"(?:^|,\s*)({'|'.join(_LABELS)})\b\s*[:=]?", re.IGNORECASE)
_AGAIN = 60.0  # seconds after which rank 0 has surely printed the checksum of another rank


def read(line: LogLine) -> LogFinding | None:
    """What the line says, if it is an alarm of torch_npu; see `listed` for the list below a strike-out."""
    if "grad-norm spike" in line.lower and (match := _SPIKE.search(line.text)) is not None:
        return _spike(match, _rank(match))
    if "feature detection detects" in line.lower and (match := _OUT.search(line.text)) is not None:
        when = match["time"] or ""
        fact = f"strike-out {when}" if when else ""
        return LogFinding(rule=_RULE, level=Level.ERROR, reason=STRIKE_OUT, rank=_rank(match), when=when, fact=fact)
    if "checksum" in line.lower and (match := _CHECKSUM.search(line.text)) is not None:
        reason, when = "checksum: wrong matmul", match["time"] or ""
        return LogFinding(
            rule=_RULE, level=Level.ERROR, reason=reason, rank=_rank(match), when=when, repeats_within=_AGAIN
        )  # fmt: skip
    return None


def listed(line: LogLine, rank: int) -> LogFinding | None:
    """What a line of the list below a strike-out says.

    Args:
        line: The line.
        rank: The rank of the strike-out.
    """
    match = _ITEM.search(line.text) if "grad-norm spike" in line.lower else None
    return _spike(match, rank) if match is not None else None


def _spike(match: re.Match[str], rank: int) -> LogFinding:
    said = _said(match["body"])
    text = said.get("abnormal value", "")
    value = number(text)
    finite = value is None or math.isfinite(value)
    state = ", ".join(f"{label} {said[key]}" for label, key in _STATE if key in said)
    return LogFinding(
        rule=_RULE,
        level=Level.WARNING if finite else Level.ERROR,
        reason=f"spike{'' if finite else ', not finite'}{f'; before it: {state}' if state else ''}",
        feature="max_square",
        value=math.nan if value is None else value,
        step=whole(said.get("bp time", "")),
        checkpoint=said.get("param name", ""),
        rank=rank,
        when=match["time"] or "",
        fact=f"spike {match['time']} {text}" if match["time"] else "",
    )


_STATE = (("mean", "history avg"), ("last", "previous value"))


def _said(body: str) -> dict[str, str]:
    """The labelled values, in any order; a value ends where the next label begins."""
    found = list(_LABEL.finditer(body))
    ends = [match.start() for match in found[1:]] + [len(body)]
    return {
        match[1].lower(): body[match.end() : end].strip().rstrip(",").removesuffix(".").strip()
        for match, end in zip(found, ends, strict=True)
    }


def _rank(match: re.Match[str]) -> int:
    text = match["rank"]
    return int(text) if text.isdecimal() and len(text) < 10 else -1

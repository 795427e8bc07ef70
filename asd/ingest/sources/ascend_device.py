"""The check on the chip: lines of SilentCheck V2, V3 and later in the device logs of AICPU.

Every kernel prints `val` and its thresholds as `name = [value]`. What differs between versions and levels is the words
before, the order and the spelling of the names, so a line is known by its source file or by the word SilentCheck, and
by having `val`. Normal values, printed at INFO, are no alarms.
"""

from __future__ import annotations

import math
import re

from asd.ingest.sources.fields import fields, number, whole
from asd.ingest.sources.finding import LogFinding
from asd.ingest.sources.log_line import LogLine
from asd.verdict import Level

__all__ = ["read"]

_FILE = re.compile(r"silent_check_?v?(\d*)\.(?:cc|cpp)\b", re.IGNORECASE | re.ASCII)
_WORD = re.compile(r"SilentCheck(?:_?V(\d))?", re.IGNORECASE | re.ASCII)
_LEVEL = re.compile(r"ComputeL([12])|(?<![a-z_])L([12])(?=[\s_-]*(?:err|warn|fault|alarm|abnormal))", re.IGNORECASE)
_LEVELS = {"1": Level.ERROR, "2": Level.WARNING}
_HEADERS = {"ERROR": Level.ERROR, "CRITICAL": Level.ERROR, "FATAL": Level.ERROR, "WARNING": Level.WARNING}


def read(line: LogLine) -> LogFinding | None:
    """What the line says, if it is an alarm of the check on the chip."""
    if "silent_check" not in line.lower and "silentcheck" not in line.lower:
        return None
    source, word = _FILE.search(line.text), _WORD.search(line.text)
    if source is None and word is None:
        return None
    level = _level(line)
    said = fields(line.text) if level is not Level.NORMAL else {}
    if "val" not in said:
        return None
    value = number(said["val"])
    if value is not None and not math.isfinite(value):
        level = Level.ERROR
    version = (source[1] if source else "") or (word[1] if word else "") or ("2" if "preval" in said else "3")
    reason = f"SilentCheck L{1 if level is Level.ERROR else 2}"
    if value is None:
        reason += f", value not readable: {said['val']}"
    elif not math.isfinite(value):
        reason += ", not finite"
    return LogFinding(
        rule=f"silent_check_v{version}",
        level=level,
        reason=reason,
        feature="l2" if version in ("1", "2") else "max_square",
        value=math.nan if value is None else value,
        limits=_limits(said),
        step=whole(said.get("step", "")),
        device=line.device,
    )


def _level(line: LogLine) -> Level:
    """The words of the message decide, then its level."""
    match = _LEVEL.search(line.text)
    return _LEVELS[match[1] or match[2]] if match else _HEADERS.get(line.level, Level.NORMAL)


def _limits(said: dict[str, str]) -> tuple[float, ...]:
    """The first-level limit, from the thresholds and the state in the line."""
    numbers = {name: found for name, text in said.items() if (found := number(text)) is not None}
    threshold = numbers.get("cthreshl1", math.nan)
    if "avg" in numbers:
        limit = threshold * _mean(numbers)
    else:
        limit = min(threshold, _jump(numbers))
    return (limit,) if math.isfinite(limit) and limit > 0 else ()


def _mean(numbers: dict[str, float]) -> float:
    """The mean that V3 compares with: it starts from zero, so it is corrected for the steps that are in it."""
    step, beta = numbers.get("step", 0.0), numbers.get("beta1", 0.99)
    if step < 1 or not 0 <= beta < 1:
        return numbers["avg"]
    return numbers["avg"] / (1.0 - float(beta**step))


def _jump(numbers: dict[str, float]) -> float:
    """Where V2's first jump threshold stands; `inf` while it is warming up or something is missing."""
    names = ("preval", "minval", "maxval", "ccoeffl1", "step", "cminsteps")
    if not all(math.isfinite(numbers.get(name, math.nan)) for name in names):
        return math.inf
    previous, low, high, factor, step, first = (numbers[name] for name in names)
    return previous + factor * (high - low) if step >= first else math.inf

"""What the lines of vendors' logs mean: one table of patterns, and how the fields of each are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from asd import fault_code
from asd.event import ABNORMAL, CODE
from asd.ingest.fields import fields, labelled, number, whole
from asd.ingest.log_line import LogLine
from asd.verdict import Level

__all__ = ["LogFinding", "read"]

STRIKE_OUT = "strike-out"
_RECOVERED = {"recovery", "recover", "recovered", "0"}
_CODES = {
    fault_code.CHECK_FAIL: Level.ERROR,
    fault_code.COMPUTING_HIGH: Level.ERROR,
    fault_code.COMPUTING_LOW: Level.WARNING,
}
"""The codes that say that a chip computed wrongly; all others are no events of ours."""


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
        limits: The first-level limit that the line implies, if it does.
        step: How many checks the site had before this one, the nearest to a step that these lines print; 0 without.
        checkpoint: Name of the parameter or site, if the line has one.
        rank: Rank it is about; None when the line does not say.
        device: Device it is about, for example `Ascend:3`; empty when the line does not say.
        host: Machine it is about; empty when the line does not say.
        when: Local time of the alarm as it stands there, where it has one of its own; empty for that of the line.
        time: The same in seconds since the epoch, where that is what stands there.
        code: Fault code.
        by_many: Whether every rank prints it, within a minute.
    """

    rule: str
    level: Level
    reason: str
    kind: str = "anomaly"
    feature: str = ""
    value: float = math.nan
    limits: tuple[float, ...] = ()
    step: int = 0
    checkpoint: str = ""
    rank: int | None = None
    device: str = ""
    host: str = ""
    when: str = ""
    time: float | None = None
    code: str = CODE
    by_many: bool = False


class _Pattern(NamedTuple):
    """One row of the table.

    Attributes:
        word: Is in every such line, in small letters; a line without is not searched.
        pattern: Its named group `rank` is a field of the finding.
        rule: Who prints such lines.
        level: Of the alarm.
        reason: What it means.
        read: The other fields; None when the line is no alarm; a list when it has several.
        by_many: As in `LogFinding`.
    """

    word: str
    pattern: re.Pattern[str]
    rule: str = ""
    level: Level = Level.ERROR
    reason: str = ""
    read: Callable[[LogLine, re.Match[str], int], dict[str, Any] | list[dict[str, Any]] | None] = lambda *_: {}
    by_many: bool = False


def read(line: LogLine, *, chips_per_card: int) -> list[LogFinding]:
    """The alarms in one message; the first row of the table that fits is right.

    Args:
        line: The message.
        chips_per_card: To tell the device from the numbers of card and chip that the device plugin prints.
    """
    for row in _TABLE:
        match = row.pattern.search(line.text) if row.word in line.lower else None
        said = row.read(line, match, chips_per_card) if match is not None else None
        if said is not None and match is not None:
            found = said if isinstance(said, list) else [said]
            common = {"rule": row.rule, "level": row.level, "reason": row.reason, "by_many": row.by_many}
            common |= {"rank": int(match["rank"])} if "rank" in match.groupdict() else {}
            return [LogFinding(**{**common, **each}) for each in found]
    return []


def _silent_check(line: LogLine, source: re.Match[str], _: int) -> dict[str, Any] | None:
    """The check on the chip prints `val` and its thresholds in any order, also for normal values."""
    match = _LEVEL.search(line.text)
    level = _LEVELS[match[1] or match[2]] if match else _HEADERS.get(line.level, Level.NORMAL)
    said = fields(line.text) if level is not Level.NORMAL else {}
    if "val" not in said:
        return None
    value = number(said["val"])
    finite = value is None or math.isfinite(value)
    level = level if finite else Level.ERROR
    word = _VERSION.search(line.text)
    version = (source[1] or "") or (word[1] if word else "") or ("2" if "preval" in said else "3")
    reason = f"SilentCheck L{1 if level is Level.ERROR else 2}{'' if finite else ', not finite'}"
    return {
        "rule": f"silent_check_v{version}",
        "level": level,
        "reason": reason if value is not None else f"{reason}, value not readable: {said['val']}",
        "feature": "l2" if version in ("1", "2") else "max_square",
        "value": math.nan if value is None else value,
        "limits": _limits({name: found for name, text in said.items() if (found := number(text)) is not None}),
        "step": whole(said.get("step", "")),
    }


def _limits(said: dict[str, float]) -> tuple[float, ...]:
    """The first-level limit, from the thresholds and the state in the line."""
    threshold = said.get("cthreshl1", math.nan)
    if "avg" not in said:
        limit = min(threshold, _jump(said))
    else:
        # The mean of V3 starts from zero, so it is corrected for the steps that are in it.
        step, beta = said.get("step", 0.0), said.get("beta1", 0.99)
        limit = threshold * said["avg"] / (1.0 - float(beta**step) if step >= 1 and 0 <= beta < 1 else 1.0)
    return (limit,) if math.isfinite(limit) and limit > 0 else ()


def _jump(said: dict[str, float]) -> float:
    """Where V2's first jump threshold stands; `inf` while it is warming up or something is missing."""
    names = ("preval", "minval", "maxval", "ccoeffl1", "step", "cminsteps")
    if not all(math.isfinite(said.get(name, math.nan)) for name in names):
        return math.inf
    previous, low, high, factor, step, first = (said[name] for name in names)
    return previous + factor * (high - low) if step >= first else math.inf


def _first_generation(line: LogLine, _match: re.Match[str], _: int) -> dict[str, Any] | None:
    if line.level != "ERROR":
        return None
    said = fields(line.text)
    value = number(said.get("val", said.get("value", "")))
    return {
        "reason": ABNORMAL if value is None or math.isfinite(value) else f"{ABNORMAL}, not finite",
        "feature": "" if value is None else "l2",
        "value": math.nan if value is None else value,
        "step": whole(said.get("step", "")),
    }


def _strike(line: LogLine, match: re.Match[str], _: int) -> dict[str, Any] | None:
    """A value that stands out is the second level, and the first when it is not finite."""
    if any(trace in line.lower for trace in _TRACES):
        return None
    body = match["body"]
    name = _NAME.search(body)
    said = fields(body[: name.start()] + body[name.end("name") :] if name else body)
    value = number(said.get("value", ""))
    if value is None:
        return None
    finite = math.isfinite(value)
    state = ", ".join(f"{label} {said[key]}" for label, key in (("mean", "avg"), ("last", "prevalue")) if key in said)
    return {
        "level": Level.WARNING if finite else Level.ERROR,
        "reason": f"strike{'' if finite else ', not finite'}{f'; before it: {state}' if state else ''}",
        "feature": "max_square",
        "value": value,
        "step": whole(said.get("count", "")),
        "checkpoint": name["name"] if name else "",
        "time": number(said.get("timestamp", "")) or None,
    }


def _strike_out(line: LogLine, _match: re.Match[str], _: int) -> dict[str, Any]:
    count = _STRIKES.search(line.text)
    return {"reason": f"{STRIKE_OUT} after {count[1]} strikes"} if count else {}


def _plugin(_line: LogLine, match: re.Match[str], chips: int) -> list[dict[str, Any]]:
    """A message of the device plugin, with its own names for node, card and chip."""
    said = {name.removesuffix("s"): text for name, text in labelled(_PLUGIN_LABEL, match["body"]).items()}
    codes = {code.upper() for code in _CODE.findall(said.get("faultcode", ""))}
    recovered = said.get("assertion", "").lower() in _RECOVERED
    place = {
        "device": _plugin_device(said, chips),
        "host": said.get("nodename", ""),
        "when": said.get("alarmraisedtime", ""),
    }
    return [{**_of_code(code, recovered=recovered), **place} for code in sorted(codes & _CODES.keys())]


def _plugin_device(said: dict[str, str], chips: int) -> str:
    card, chip, logic = (said.get(name, "") for name in ("cardid", "deviceid", "logicid"))
    if logic.isdecimal():
        return f"Ascend:{int(logic)}"
    if not (card.isdecimal() and chip.isdecimal()):
        return ""
    if int(chip) >= chips:  # the number of chips is wrong, and a wrong device is worse than none
        return f"Ascend card {int(card)} chip {int(chip)}"
    return f"Ascend:{int(card) * chips + int(chip)}"


def _driver(line: LogLine, _match: re.Match[str], _: int) -> list[dict[str, Any]]:
    """A line of the driver: an event id, as hexadecimal or decimal number, or its three parts."""
    codes = {
        f"{int(text):08X}" if len(text) == 10 and text.isdecimal() else text.upper()
        for text in _EVENT_ID.findall(line.text)
    }
    node, sensor, state = (pattern.search(line.text) for pattern in (_NODE, _SENSOR, _STATE))
    if node is not None and sensor is not None and state is not None:
        number_of_state = int(state[1]) if state[1].isdecimal() else int(state[1], 16)
        codes.add(f"{0x80000000 | int(node[1], 16) << 17 | int(sensor[1], 16) << 9 | number_of_state:08X}")
    assertion, device = _ASSERTION.search(line.text), _DEVICE.search(line.text)
    recovered = assertion is not None and assertion[1].lower() in _RECOVERED
    name = f"Ascend:{int(device[1])}" if device else ""
    return [{**_of_code(code, recovered=recovered), "device": name} for code in sorted(codes & _CODES.keys())]


def _of_code(code: str, *, recovered: bool) -> dict[str, Any]:
    state = fault_code.decode(code).state
    return {
        "kind": "recovery" if recovered else "anomaly",
        "level": Level.NORMAL if recovered else _CODES[code],
        "reason": f"recovered: {state}" if recovered else state,
        "rank": -1,
        "code": code,
    }


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


_LEVEL = re.compile(r"ComputeL([12])|(?<![a-z_])L([12])(?=[\s_-]*(?:err|warn|fault|alarm|abnormal))", re.IGNORECASE)
_LEVELS = {"1": Level.ERROR, "2": Level.WARNING}
_HEADERS = {"ERROR": Level.ERROR, "CRITICAL": Level.ERROR, "FATAL": Level.ERROR, "WARNING": Level.WARNING}
_VERSION = _compiled(r"SilentCheck(?:_?V(\d))?")
_NAME = re.compile(
    r"(?<![\w.])name\s*[:=]\s*(?P<name>.*?)\s*(?:,\s*(?:timestamp|value|stat)\s*[:=]|}|$)", re.IGNORECASE
)
_TRACES = ("strike happened", "will not be recorded")
"""Traces of a strike: the first doubles the alarm, the second says that there is none because of the cooling-off."""
_STRIKES = _compiled(r"strikes_num\s*[:=]\s*\[?(\d{1,9})")
_PLUGIN_LABEL = re.compile(
    r"(?:^|,\s*)(nodeName|assertion|cardID|deviceID|logicID|faultCodes?|faultLevelName|alarmRaisedTime)\s*[:=]",
    re.IGNORECASE,
)
_CODE = _compiled(r"(?<![0-9a-z])(?:0x)?([0-9a-f]{8})(?![0-9a-z])")
_EVENT_ID = _compiled(r"event[\s_-]?id\W{0,3}?\s*[:=]?\s*[\[(\"']?\s*(?:0x)?([0-9a-f]{8,10})\b")
_NODE = _compiled(r"(?<!sub[ _])node[\s_]type\s*[:=]\s*0x([0-9a-f]{1,4})\b")
_SENSOR = _compiled(r"sensor[\s_]type\s*[:=]\s*0x([0-9a-f]{1,2})\b")
_STATE = _compiled(r"event[\s_]state\s*[:=]\s*(0x[0-9a-f]{1,3}|\d{1,3})\b")
_ASSERTION = _compiled(r"\bassertion\W{0,2}?\s*[:=]\s*[\"'\[]?(\w+)")
_DEVICE = _compiled(r"\b(?:logic|device|dev|phy|chip)[\s_-]?id\W{0,2}?\s*[:=]\s*[\"'\[]?(\d{1,6})\b")
_RANK = r"\s*[:=]?\s*\[?(?P<rank>\d{1,9})\b"

_TABLE = (
    # MindSpore's combined check. Lines that explain how to search for these have no number, so that is demanded.
    _Pattern(
        word="strikerecord",
        pattern=re.compile(r"StrikeRecord\s*[{(\[](?P<body>.*)", re.IGNORECASE),
        rule="combined",
        read=_strike,
    ),
    _Pattern(
        word="strike",
        pattern=_compiled(r"strikes?\s+out\s+on\s+rank" + _RANK),
        rule="combined",
        reason=STRIKE_OUT,
        read=_strike_out,
    ),
    _Pattern(
        word="checksum",
        pattern=_compiled(r"CheckSum\s+detects?\s+MatMul\s+errors?\s+on\s+rank" + _RANK),
        rule="combined",
        reason="checksum: wrong MatMul",
    ),
    _Pattern(
        word="checksum",
        pattern=re.compile(r"Global\s+CheckSum\s+result\s+is\s*:?\s*\[?(?:1|true)\b", re.IGNORECASE),
        rule="combined",
        reason="checksum: wrong MatMul on a rank that is not named",
        read=lambda *_: {"rank": -1},
        by_many=True,
    ),
    _Pattern(
        word=ABNORMAL,
        pattern=_compiled(re.escape(ABNORMAL)),
        rule="silent_check_v1",
        read=_first_generation,
    ),
    # The check on the chip: known by its source file, or by the word SilentCheck.
    _Pattern(
        word="silent",
        pattern=_compiled(r"silent_check_?v?(\d*)\.(?:cc|cpp)\b"),
        read=_silent_check,
    ),
    _Pattern(
        word="silentcheck",
        pattern=_compiled(r"SilentCheck(?:_?V(\d))?"),
        read=_silent_check,
    ),
    # Fault codes in messages of the device plugin, and in the log of the operating system.
    _Pattern(
        word="device fault",
        pattern=re.compile(r"device fault\s*,\s*(?P<body>.*)", re.IGNORECASE),
        rule="driver",
        read=_plugin,
    ),
    _Pattern(
        word="",
        pattern=re.compile(r"80818c0|215597363|sensor", re.IGNORECASE),
        rule="driver",
        read=_driver,
    ),
)

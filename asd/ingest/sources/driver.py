"""The driver's fault codes in logs of the operating system, and the messages of the device plugin.

Three codes say that a chip computed wrongly: 80818C00, 80818C05 and 80818C06. All others are no events of ours.
"""

from __future__ import annotations

import re

from asd import fault_code
from asd.ingest.sources.finding import LogFinding
from asd.ingest.sources.log_line import LogLine
from asd.verdict import Level

__all__ = ["read"]

_RULE = "driver"
_CODES = {
    fault_code.CHECK_FAIL: Level.ERROR,
    fault_code.COMPUTING_HIGH: Level.ERROR,
    fault_code.COMPUTING_LOW: Level.WARNING,
}
_EVENT_ID = re.compile(
    r"event[\s_-]?id\W{0,3}?\s*[:=]?\s*[\[(\"']?\s*(?:0x)?([0-9a-f]{8,10})\b", re.IGNORECASE | re.ASCII
)
_NODE = re.compile(r"(?<!sub[ _])node[\s_]type\s*[:=]\s*0x([0-9a-f]{1,4})\b", re.IGNORECASE | re.ASCII)
_SENSOR = re.compile(r"sensor[\s_]type\s*[:=]\s*0x([0-9a-f]{1,2})\b", re.IGNORECASE | re.ASCII)
_STATE = re.compile(r"event[\s_]state\s*[:=]\s*(0x[0-9a-f]{1,3}|\d{1,3})\b", re.IGNORECASE | re.ASCII)
_ASSERTION = re.compile(r"\bassertion\W{0,2}?\s*[:=]\s*[\"'\[]?(\w+)", re.IGNORECASE | re.ASCII)
_DEVICE = re.compile(
    r"\b(?:logic|device|dev|phy|chip)[\s_-]?id\W{0,2}?\s*[:=]\s*[\"'\[]?(\d{1,6})\b",
    re.IGNORECASE | re.ASCII,
)
_PLUGIN = re.compile(r"device fault\s*,\s*(?P<body>.*)", re.IGNORECASE)
_LABEL = re.compile(
    r"(?:^|,\s*)(nodeName|assertion|cardID|deviceID|logicID|faultCodes?|faultLevelName|alarmRaisedTime)\s*[:=]",
    re.IGNORECASE,
)
_CODE = re.compile(r"(?<![0-9a-z])(?:0x)?([0-9a-f]{8})(?![0-9a-z])", re.IGNORECASE | re.ASCII)
_WORDS = ("80818c0", "215597363", "sensor")
_RECOVERED = {"recovery", "recover", "recovered", "0"}


def read(line: LogLine, chips_per_card: int) -> list[LogFinding]:
    """What the line says about each of the codes in it.

    Args:
        line: The line.
        chips_per_card: To tell the device from the numbers of card and chip that the device plugin prints.
    """
    if not any(word in line.lower for word in _WORDS):
        return []
    if (match := _PLUGIN.search(line.text)) is not None:
        return _plugin(match["body"], chips_per_card)
    codes = {_code(text) for text in _EVENT_ID.findall(line.text)} | {_of_triple(line.text)}
    assertion, device = _ASSERTION.search(line.text), _DEVICE.search(line.text)
    recovered = assertion is not None and assertion[1].lower() in _RECOVERED
    name = f"Ascend:{int(device[1])}" if device else ""
    return [_finding(code, name, "", "", recovered=recovered) for code in sorted(codes & _CODES.keys())]


def _plugin(body: str, chips_per_card: int) -> list[LogFinding]:
    found = list(_LABEL.finditer(body))
    ends = [match.start() for match in found[1:]] + [len(body)]
    said = {
        match[1].lower().removesuffix("s"): body[match.end() : end].strip(" \"'\\}]")
        for match, end in zip(found, ends, strict=True)
    }
    codes = {code.upper() for code in _CODE.findall(said.get("faultcode", ""))}
    recovered = said.get("assertion", "").lower() in _RECOVERED
    device, host = _plugin_device(said, chips_per_card), said.get("nodename", "")
    when = said.get("alarmraisedtime", "")
    return [_finding(code, device, host, when, recovered=recovered) for code in sorted(codes & _CODES.keys())]


def _plugin_device(said: dict[str, str], chips_per_card: int) -> str:
    card, chip, logic = (said.get(name, "") for name in ("cardid", "deviceid", "logicid"))
    if logic.isdecimal():
        return f"Ascend:{int(logic)}"
    if not (card.isdecimal() and chip.isdecimal()):
        return ""
    if int(chip) >= chips_per_card:  # the number of chips is wrong, and a wrong device is worse than none
        return f"Ascend card {int(card)} chip {int(chip)}"
    return f"Ascend:{int(card) * chips_per_card + int(chip)}"


def _finding(code: str, device: str, host: str, when: str, *, recovered: bool) -> LogFinding:
    state = fault_code.decode(code).state
    level = Level.NORMAL if recovered else _CODES[code]
    kind, reason = ("recovery", f"recovered: {state}") if recovered else ("anomaly", state)
    return LogFinding(
        rule=_RULE, kind=kind, level=level, reason=reason, rank=-1, code=code, device=device, host=host, when=when
    )  # fmt: skip


def _code(text: str) -> str:
    """The code, in eight digits; the driver's interface prints it as a decimal number of ten."""
    return f"{int(text):08X}" if len(text) == 10 and text.isdecimal() else text.upper()


def _of_triple(text: str) -> str:
    node, sensor, state = (pattern.search(text) for pattern in (_NODE, _SENSOR, _STATE))
    if node is None or sensor is None or state is None:
        return ""
    return f"{0x80000000 | int(node[1], 16) << 17 | int(sensor[1], 16) << 9 | _whole(state[1]):08X}"


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else int(text, 16)

"""Fault codes of a chip: in messages of the device plugin and the driver, and in states as tools print them."""

import re
from dataclasses import replace

from asd import fault_code
from asd.ingest.fields import labelled, whole
from asd.ingest.log_line import LogFinding
from asd.verdict import Level

_RECOVERED = {"recovery", "recover", "recovered", "0"}
_CODES = {
    fault_code.CHECK_FAIL: Level.ERROR,
    fault_code.COMPUTING_HIGH: Level.ERROR,
    fault_code.COMPUTING_LOW: Level.WARNING,
}
"""The codes that say that a chip computed wrongly; all others are no events of ours."""


def of_plugin(_text: str, match: re.Match[str]) -> list[LogFinding]:
    """Reads a message of the device plugin, with its own names for node, card and chip."""
    said = {name.removesuffix("s"): text for name, text in labelled(_PLUGIN_LABEL, match["body"]).items()}
    codes = _known(said.get("faultcode", ""))
    recovered = said.get("assertion", "").lower() in _RECOVERED
    device, host = _plugin_device(said), said.get("nodename", "")
    return [_of_code(code, device, host, recovered=recovered) for code in codes]


def _plugin_device(said: dict[str, str]) -> str:
    card, chip, logic = (said.get(name, "") for name in ("cardid", "deviceid", "logicid"))
    if logic.isdecimal() and len(logic) < 7:
        return f"Ascend:{int(logic)}"
    if not (card.isdecimal() and chip.isdecimal() and len(card + chip) < 7):
        return ""
    # How many chips a card has is not said, and a wrong device is worse than none.
    return f"Ascend card {int(card)} chip {int(chip)}" if int(chip) else f"Ascend:{int(card)}"


def of_driver(text: str, _match: re.Match[str]) -> list[LogFinding]:
    """Reads a line of the driver: an event id, as hexadecimal or decimal number, or its three parts."""
    codes = {
        f"{int(each):08X}" if len(each) == 10 and each.isdecimal() else each.upper() for each in _EVENT_ID.findall(text)
    }
    node, sensor, state = (pattern.search(text) for pattern in (_NODE, _SENSOR, _STATE))
    if node is not None and sensor is not None and state is not None:
        number_of_state = int(state[1]) if state[1].isdecimal() else int(state[1], 16)
        codes.add(f"{0x80000000 | int(node[1], 16) << 17 | int(sensor[1], 16) << 9 | number_of_state:08X}")
    assertion, device = _ASSERTION.search(text), _DEVICE.search(text)
    recovered = assertion is not None and assertion[1].lower() in _RECOVERED
    name = f"Ascend:{int(device[1])}" if device else ""
    return [_of_code(code, name, recovered=recovered) for code in sorted(codes & _CODES.keys())]


def _of_code(code: str, device: str = "", host: str = "", *, recovered: bool = False) -> LogFinding:
    state, level = fault_code.decode(code).state, _CODES[code]
    found = LogFinding(rule="driver", reason=state, level=level, rank=-1, device=device, host=host, code=code)
    return replace(found, kind="recovery", level=Level.NORMAL, reason=f"recovered: {state}") if recovered else found


def of_health(_text: str, match: re.Match[str]) -> list[LogFinding]:
    """Reads the output of `npu-smi info -t health`; the device is in an earlier line."""
    return [_of_code(code) for code in _known(match["codes"])]


def of_scrape(_text: str, match: re.Match[str]) -> list[LogFinding]:
    """Reads a series of npu-exporter, whose value is the code as a decimal number."""
    device = _ID.search(match["labels"])
    name = f"Ascend:{int(device[1])}" if device else ""
    return [_of_code(code, name) for code in _known(f"{whole(match['value']):08X}")]


def of_config_map(text: str, _match: re.Match[str]) -> list[LogFinding]:
    """Returns the faults that the device plugin lists in its ConfigMap: JSON in JSON, however often it is quoted."""
    return [
        _of_code(code, f"Ascend:{int(fault[1])}")
        for fault in _FAULT.finditer(text.replace("\\", ""))
        for code in _known(fault[2])
    ]


def _known(text: str) -> list[str]:
    return sorted({code.upper() for code in _CODE.findall(text)} & _CODES.keys())


def compiled(pattern: str) -> re.Pattern[str]:
    """Returns a pattern of ASCII letters of either case."""
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


_PLUGIN_LABEL = re.compile(
    r"(?:^|,\s*)(nodeName|assertion|cardID|deviceID|logicID|faultCodes?|faultLevelName|alarmRaisedTime)\s*[:=]",
    re.IGNORECASE,
)
_CODE = compiled(r"(?<![0-9a-z])(?:0x)?([0-9a-f]{8})(?![0-9a-z])")
_EVENT_ID = compiled(r"event[\s_-]?id\W{0,40}?(?:0x)?([0-9a-f]{8,10})\b")
_NODE = compiled(r"(?<!sub[ _])node[\s_]type\s*[:=]\s*0x([0-9a-f]{1,4})\b")
_SENSOR = compiled(r"sensor[\s_]type\s*[:=]\s*0x([0-9a-f]{1,2})\b")
_STATE = compiled(r"event[\s_]state\s*[:=]\s*(0x[0-9a-f]{1,3}|\d{1,3})\b")
_ASSERTION = compiled(r"\bassertion\W{0,2}?\s*[:=]\s*[\"'\[]?(\w+)")
_DEVICE = compiled(r"\b(?:logic|device|dev|phy|chip)[\s_-]?id\W{0,2}?\s*[:=]\s*[\"'\[]?(\d{1,6})\b")
_ID = re.compile(r'\bid="(\d{1,6})"', re.ASCII)
_FAULT = compiled(r'npu_name"?\s*:\s*"?[a-z0-9]+-(\d{1,6})"[^{}]*?fault_code"?\s*:\s*"([0-9a-f, ]*)"')

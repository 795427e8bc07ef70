"""Fault codes of the Ascend driver, and what is packed into them.

A code whose first hex digit is 8 packs three numbers: node type (bits 17-27), sensor type (bits 9-16) and event state
(bits 0-8). Source: the driver's event ids; the layout fits all 125 entries of the vendor's list that print the triple.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["CHECK_FAIL", "COMPUTING_HIGH", "COMPUTING_LOW", "NO_FAULT", "FaultCode", "decode", "is_code"]

CHECK_FAIL = "80818C00"
"""An accuracy-sensitive feature value was abnormal."""
COMPUTING_HIGH = "80818C05"
"""The hardware's computing check failed, high risk."""
COMPUTING_LOW = "80818C06"
"""The hardware's computing check failed, low risk."""
NO_FAULT = "00000000"
"""No fault of a device: what looks for the others must not find it."""

_NODE_TYPES = {0x40: "SoC"}
_SENSOR_TYPES = {0xC6: "Check Sensor"}
_STATES = {0: "check fail", 5: "hardware computing check, high risk", 6: "hardware computing check, low risk"}
_SEVERITIES = {CHECK_FAIL: "minor"}
_HANDLING = {CHECK_FAIL: "SeparateNPU", COMPUTING_HIGH: "SeparateNPU", COMPUTING_LOW: "SubHealthFault"}
_PATTERN = re.compile(r"[0-9A-F]{8}", re.ASCII)


class FaultCode(NamedTuple):
    """What a code says.

    Attributes:
        node_type: The part of the machine, for example `SoC`; a number in hex where the name is not known.
        sensor_type: What noticed it, for example `Check Sensor`.
        state: What it noticed, for example `check fail`.
        severity: The driver's view, where it is documented: `minor`; empty for others.
        handling: What the device plugin does about a listed code, for example `SeparateNPU`; empty for others.
    """

    node_type: str
    sensor_type: str
    state: str
    severity: str
    handling: str


def is_code(text: str) -> bool:
    """Whether `text` is eight upper-case hex digits."""
    return _PATTERN.fullmatch(text) is not None


def decode(code: str) -> FaultCode:
    """What `code` says; the first three fields are empty for a code that packs nothing.

    >>> decode("80818C00")[:3]
    ('SoC', 'Check Sensor', 'check fail')
    """
    known = _SEVERITIES.get(code, ""), _HANDLING.get(code, "")
    if not is_code(code) or code[0] != "8":
        return FaultCode("", "", "", *known)
    number = int(code, 16)
    node, sensor, state = (number & 0x0FFFFFFF) >> 17, number >> 9 & 0xFF, number & 0x1FF
    return FaultCode(
        _NODE_TYPES.get(node, f"{node:#x}"),
        _SENSOR_TYPES.get(sensor, f"{sensor:#x}"),
        _STATES.get(state, str(state)),
        *known,
    )

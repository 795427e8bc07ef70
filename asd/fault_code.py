"""The fault codes of the Ascend driver that say that a device computed wrongly, and what they say."""

from __future__ import annotations

import re
from typing import NamedTuple

CHECK_FAIL = "80818C00"
"""An accuracy-sensitive feature value was abnormal."""
COMPUTING_HIGH = "80818C05"
"""The hardware's computing check failed, high risk."""
COMPUTING_LOW = "80818C06"
"""The hardware's computing check failed, low risk."""
NO_FAULT = "00000000"
"""No fault of a device: what looks for the others must not find it."""

_PATTERN = re.compile(r"[0-9A-F]{8}", re.ASCII)


class FaultCode(NamedTuple):
    """What a code says.

    Attributes:
        node_type: The part of the machine, for example `SoC`; empty for a code that is not listed.
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


_LISTED = {
    CHECK_FAIL: FaultCode("SoC", "Check Sensor", "check fail", "minor", "SeparateNPU"),
    COMPUTING_HIGH: FaultCode("SoC", "Check Sensor", "hardware computing check, high risk", "", "SeparateNPU"),
    COMPUTING_LOW: FaultCode("SoC", "Check Sensor", "hardware computing check, low risk", "", "SubHealthFault"),
}


def decode(code: str) -> FaultCode:
    """What `code` says; all fields are empty for one that is not listed.

    >>> decode("80818C00")[:3]
    ('SoC', 'Check Sensor', 'check fail')
    """
    return _LISTED.get(code, FaultCode("", "", "", "", ""))

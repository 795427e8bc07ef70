"""Fault codes of the Ascend driver for a device that computed wrongly, and their meaning."""

import re
from typing import NamedTuple

CHECK_FAIL = "80818C00"  # an accuracy-sensitive feature value was abnormal
COMPUTING_HIGH = "80818C05"  # the hardware's computing check failed, high risk
COMPUTING_LOW = "80818C06"  # the hardware's computing check failed, low risk
NO_FAULT = "00000000"  # no fault of a device: searches for the other codes must not find it

_PATTERN = re.compile(r"[0-9A-F]{8}", re.ASCII)


class FaultCode(NamedTuple):
    """Meaning of a code."""

    node_type: str  # part of the machine, for example `SoC`; empty for a code that is not listed
    sensor_type: str  # sensor, for example `Check Sensor`
    state: str  # state that the sensor reported, for example `check fail`
    severity: str  # severity by the driver's documents: `minor`; empty for others
    handling: str  # reaction of the device plugin to a listed code, for example `SeparateNPU`; empty for others


def is_code(text: str) -> bool:
    """Returns whether `text` is eight upper-case hex digits."""
    return _PATTERN.fullmatch(text) is not None


_LISTED = {
    CHECK_FAIL: FaultCode("SoC", "Check Sensor", "check fail", "minor", "SeparateNPU"),
    COMPUTING_HIGH: FaultCode("SoC", "Check Sensor", "hardware computing check, high risk", "", "SeparateNPU"),
    COMPUTING_LOW: FaultCode("SoC", "Check Sensor", "hardware computing check, low risk", "", "SubHealthFault"),
}


def decode(code: str) -> FaultCode:
    """Returns the meaning of `code`; all fields are empty for one that is not listed.

    >>> decode("80818C00")[:3]
    ('SoC', 'Check Sensor', 'check fail')
    """
    return _LISTED.get(code, FaultCode("", "", "", "", ""))

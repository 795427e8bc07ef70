"""MindCluster's public fault: the message by which an outside detector reports, and every rule it must keep.

ClusterD drops what breaks a rule, mostly without an answer, so a message is validated here before it is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["CODES", "CODE_NAMES", "MOST_FAULTS", "RESOURCE", "is_node_name", "message_text", "registered", "validate"]

CODES = {
    "000011001": "NotHandleFaultCodes",
    "010011001": "SubHealthFaultCodes",
    "020011001": "SeparateNPUCodes",
    "110011001": "SubHealthFaultCodes",
}
"""Our nine-digit codes and the list each is to be registered in."""
CODE_NAMES = {
    "000011001": "anomaly, no action",
    "010011001": "suspect device",
    "020011001": "confirmed device",
    "110011001": "suspect node",
}
RESOURCE = "asd"
MOST_FAULTS = 100

_SHIPPED_RESOURCES = ("CCAE", "fd-online", "pingmesh", "Netmind", "dpcStorage", "dtfsStorage")
_LISTS = ("NotHandleFaultCodes", "SubHealthFaultCodes", "SeparateNPUCodes", "PreSeparateNPUCodes")
_LARGEST = 1024 * 1024
_EARLIEST = 1_735_689_600_000  # 2025-01-01T00:00:00Z
_LATEST = 9_999_999_999_999
_MESSAGE = ("id", "timestamp", "version", "resource", "faults")
_FAULT = ("faultId", "faultType", "faultCode", "faultTime", "assertion", "faultLocation", "influence", "description")
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


def is_node_name(name: str) -> bool:
    """Whether `name` is the name of one node."""
    return _NODE_NAME.fullmatch(name) is not None


def registered(shipped: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What ClusterD must find in `publicCustomization.json`, or it drops every message of ours.

    Args:
        shipped: What stands in that file now; it replaces the lists that ClusterD comes with, so they must stay in it.

    Returns:
        The same with our codes and our resource.
    """
    before = shipped or {}
    codes = {name: list(before.get("publicFaultCode", {}).get(name, ())) for name in _LISTS}
    for code, name in CODES.items():
        codes[name] += [code] * (code not in codes[name])
    resources = list(before.get("publicFaultResource", _SHIPPED_RESOURCES))
    return {"publicFaultCode": codes, "publicFaultResource": resources + [RESOURCE] * (RESOURCE not in resources)}


def message_text(message: Mapping[str, Any]) -> str:
    """The JSON text of a valid message.

    Raises:
        ValueError: As `validate`, or the text has more than 1 MB.
    """
    validate(message)
    text = json.dumps(message, ensure_ascii=True)
    if len(text) > _LARGEST:
        raise ValueError(f"a public fault message of {len(text)} bytes is too long; valid are at most {_LARGEST}")
    return text


def validate(
    message: Mapping[str, Any], *, codes: Sequence[str] = tuple(CODES), resources: Sequence[str] = (RESOURCE,)
) -> None:
    """Checks every rule of a message.

    Args:
        message: What is to be sent.
        codes: The fault codes that are registered.
        resources: The resources that are registered.

    Raises:
        ValueError: A rule is broken; the sentence names the field, its value and the rule.
    """
    _exactly(message, "the message", _MESSAGE)
    _matches(message["id"], "id", r"[A-Za-z0-9_.-]{8,128}")
    _milliseconds(message["timestamp"], "timestamp")
    _one_of(message["version"], "version", ("1.0",))
    _one_of(message["resource"], "resource", resources)
    faults = _list_of(message["faults"], "faults", 1, MOST_FAULTS)
    for number, fault in enumerate(faults):
        _check_fault(fault, f"faults[{number}].", codes)
    ids = [fault["faultId"] for fault in faults]
    _require(len(set(ids)) == len(ids), "faults", ids, "each faultId once")


def _check_fault(fault: Any, path: str, codes: Sequence[str]) -> None:
    _exactly(fault, path.rstrip("."), _FAULT, optional=("faultLocation", "description"))
    _matches(fault["faultId"], path + "faultId", r"[A-Za-z0-9_.-]{8,128}")
    _one_of(fault["faultType"], path + "faultType", ("NPU", "Node", "Network", "Storage"))
    _matches(fault["faultCode"], path + "faultCode", r"[0-9]{9}")
    _one_of(fault["faultCode"], path + "faultCode", codes)
    _milliseconds(fault["faultTime"], path + "faultTime")
    _one_of(fault["assertion"], path + "assertion", ("occur", "recover", "once"))
    location = fault.get("faultLocation", {})
    _require(isinstance(location, dict) and len(location) <= 10, path + "faultLocation", location, "at most 10 entries")
    for key, value in location.items():
        _bytes(key, f"{path}faultLocation has a key that", 16)
        _bytes(value, f"{path}faultLocation[{key!r}]", 128)
    for number, node in enumerate(_list_of(fault["influence"], path + "influence", 1, 1000)):
        _check_influence(node, f"{path}influence[{number}].")
    _matches(fault.get("description", ""), path + "description", r"[\S ]{0,512}")


def _check_influence(node: Any, path: str) -> None:
    _exactly(node, path.rstrip("."), ("nodeName", "nodeSN", "deviceIds"), optional=("nodeName", "nodeSN"))
    if node.get("nodeName"):
        _matches(node["nodeName"], path + "nodeName", _NODE_NAME.pattern)
    else:
        serial = node.get("nodeSN")
        _require(isinstance(serial, str) and serial != "", path + "nodeSN", serial, "a text when nodeName is empty")
    ids = _list_of(node["deviceIds"], path + "deviceIds", 1, 32)
    for item in ids:
        _require(type(item) is int and 0 <= item <= 31, path + "deviceIds", ids, "whole numbers from 0 to 31")
    _require(len(set(ids)) == len(ids), path + "deviceIds", ids, "each number once")


def _require(holds: bool, name: str, value: object, valid: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not holds:
        raise ValueError(f"public fault field {name} is {repr(value)[:120]}; valid is {valid}")


def _exactly(value: Any, name: str, fields: Sequence[str], optional: Sequence[str] = ()) -> None:
    _require(isinstance(value, dict), name, value, "a JSON object")
    missing = [field for field in fields if field not in value and field not in optional]
    unknown = [field for field in value if field not in fields]
    _require(not missing and not unknown, name, value, f"an object with {', '.join(fields)}")


def _list_of(value: Any, name: str, fewest: int, most: int) -> list[Any]:
    _require(isinstance(value, list) and fewest <= len(value) <= most, name, value, f"a list of {fewest} to {most}")
    items: list[Any] = value
    return items


def _matches(value: Any, name: str, pattern: str) -> None:
    # As a whole and in ASCII: `$` would let a line break at the end pass, which ClusterD does not.
    _require(
        isinstance(value, str) and bool(re.fullmatch(pattern, value, re.ASCII)), name, value, f"text like {pattern}"
    )


def _one_of(value: Any, name: str, valid: Sequence[str]) -> None:
    _require(isinstance(value, str) and value in valid, name, value, " or ".join(valid))


def _milliseconds(value: Any, name: str) -> None:
    holds = type(value) is int and _EARLIEST <= value <= _LATEST
    _require(holds, name, value, "a time in milliseconds with 13 digits, not before 2025")


def _bytes(value: Any, name: str, most: int) -> None:
    size = len(value.encode(errors="backslashreplace")) if isinstance(value, str) else most + 1
    _require(size <= most, name, value, f"a text of at most {most} bytes")

"""The public faults of all isolated devices, as one message: ClusterD reads a whole message or nothing."""

import uuid
from collections.abc import Mapping
from typing import Any

from asd.event import CODE
from asd.exporters.isolators import public_fault
from asd.exporters.isolators.marks import plain
from asd.exporters.isolators.public_fault import MOST_FAULTS, RESOURCE

_LONGEST_DESCRIPTION = 512
_LONGEST_VALUE = 128

Message = Mapping[str, Any]


def latest(message: Message | None, node: str, number: int) -> Mapping[str, Any] | None:
    """Returns the active fault of a device, else the last recovered one; None when it had none."""
    found = None
    for fault in message["faults"] if message else ():
        where = fault["influence"][0]
        if where.get("nodeName") == node and where["deviceIds"] == [number]:
            if fault["assertion"] == "occur":
                return dict(fault)
            found = dict(fault)
    return found


def with_occurrence(
    message: Message | None, node: str, number: int, *, reason: str, event_id: str, now: float
) -> dict[str, Any]:
    """Returns the message with a new fault, whose id is unique."""
    fault = {
        **{"faultId": f"asd-{uuid.uuid4().hex}", "faultType": "NPU", "faultCode": public_fault.CODE},
        **{"faultTime": _milliseconds(now), "assertion": "occur"},
        "faultLocation": {"code": CODE, "event": _ascii(event_id, _LONGEST_VALUE)},
        "influence": [{"nodeName": node, "deviceIds": [number]}],
        "description": _ascii(f"{CODE} {reason}", _LONGEST_DESCRIPTION),
    }
    return _renewed(message, [*_faults(message), fault], now)


def with_recovery(message: Message, fault_id: str, now: float) -> dict[str, Any]:
    """Returns the message with this fault recovered; the time of its occurrence stays."""
    others = [fault for fault in _faults(message) if fault["faultId"] != fault_id]
    recovered = [{**fault, "assertion": "recover"} for fault in _faults(message) if fault["faultId"] == fault_id]
    return _renewed(message, [*others, *recovered], now)


def _renewed(message: Message | None, faults: list[dict[str, Any]], now: float) -> dict[str, Any]:
    """Returns a message that ClusterD takes for a new one; the oldest recoveries are dropped for lack of room."""
    active = [fault for fault in faults if fault["assertion"] == "occur"]
    if len(active) > MOST_FAULTS:
        raise ValueError(f"{MOST_FAULTS} devices are isolated already, the most that one message can hold")
    recovered = [fault for fault in faults if fault["assertion"] != "occur"]
    room = MOST_FAULTS - len(active)
    return {
        "id": f"asd-{uuid.uuid4().hex}",
        "timestamp": max(_milliseconds(now), message["timestamp"] + 1 if message else 0),
        "version": "1.0",
        "resource": RESOURCE,
        "faults": active + recovered[len(recovered) - room if len(recovered) > room else 0 :],
    }


def _faults(message: Message | None) -> list[dict[str, Any]]:
    return list(message["faults"]) if message else []


def _milliseconds(now: float) -> int:
    return int(now * 1000)


def _ascii(text: str, most: int) -> str:
    """Returns `text` on one line and in ASCII, at most `most` bytes long."""
    return plain(text, 10 * most).encode("ascii", "backslashreplace").decode()[:most].strip()

"""Marks of an isolated device on a Kubernetes node: annotation, cordon, taint, condition and event."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from asd.event import CODE
from asd.exporters.isolators.marks import plain
from asd.isolator import IsolationOwner

ANNOTATION = "asd.mindspore.org/isolated-by"  # mark of ownership: JSON with every isolated device of the node
TAINT = "asd.mindspore.org/silent-data-corruption"
CONDITION = "AsdSilentCorruption"
COMPONENT = "asd"

_LONGEST_REASON = 300
_LONGEST_MESSAGE = 1000
_LONGEST_NAME = 200

Node = Mapping[str, Any]
Marks = dict[str, dict[str, str]]


def marks_of(node: Node) -> Marks:
    """Returns the devices for which we have isolated the node, each with `event` and `reason`."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    if not text:
        return {}
    try:
        devices = json.loads(text)["devices"]
    except (ValueError, TypeError, KeyError, RecursionError):
        devices = None
    if not isinstance(devices, dict) or not all(isinstance(mark, dict) for mark in devices.values()):
        raise ValueError(
            f"the annotation {ANNOTATION} of the node is {text[:120]!r}; it must be what this isolator writes"
        )
    return devices


def held_by(node: Node, device: str) -> IsolationOwner:
    """Returns the owner of the isolation of this device, or raises ValueError as `marks_of`."""
    marks = marks_of(node)
    if marks and _is_tainted(node):
        return IsolationOwner.OURS if device in marks else IsolationOwner.FREE
    return IsolationOwner.OTHERS if _spec(node).get("unschedulable") else IsolationOwner.FREE


def isolate_patch(node: Node, device: str, reason: str, event_id: str, effect: str) -> dict[str, Any]:
    """Returns the merge patch that isolates a node for a device.

    It replaces the whole list of taints, with other owners' ones kept, and applies to this version of the node only.
    """
    marks = marks_of(node) if _is_tainted(node) else {}  # a release by hand releases the whole node
    marks = {**marks, device: {"event": plain(event_id, 128), "reason": plain(reason, _LONGEST_REASON)}}
    taint = {"key": TAINT, "value": CODE, "effect": effect}
    spec = {"unschedulable": True, "taints": [*_taints_of_others(node), taint]}
    return {"metadata": _metadata(node, marks), "spec": spec}


def release_patch(node: Node, device: str) -> dict[str, Any]:
    """Returns the merge patch that removes the mark of a device and, with the last one, cordon and taint."""
    marks = {name: mark for name, mark in marks_of(node).items() if name != device}
    if marks:
        return {"metadata": _metadata(node, marks)}
    return {
        "metadata": _metadata(node, marks),
        "spec": {"unschedulable": None, "taints": _taints_of_others(node) or None},
    }


def condition_patch(node: Node, devices: Mapping[str, str], now: float) -> dict[str, Any] | None:
    """Returns the strategic merge patch that updates the condition in the status; None if it is up to date.

    Args:
        node: The node.
        devices: Devices that are isolated, or about to be, and their events. The node may still refuse its part.
        now: Seconds since the epoch.
    """
    conditions = (node.get("status") or {}).get("conditions") or []
    found = next((condition for condition in conditions if condition.get("type") == CONDITION), None)
    if not devices and (found is None or found.get("status") == "False"):
        return None
    listed = ", ".join(f"{device} ({event})" for device, event in sorted(devices.items()))
    message = plain(f"{CODE}: faulty devices: {listed}" if devices else "no device is isolated", _LONGEST_MESSAGE)
    status = "True" if devices else "False"
    if found is not None and (found.get("status"), found.get("message")) == (status, message):
        return None
    since = found.get("lastTransitionTime") if found is not None and found.get("status") == status else None
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": "SilentDataCorruption" if devices else "NoDeviceIsolated",
        "message": message,
        "lastHeartbeatTime": _time(now),
        "lastTransitionTime": since or _time(now),
    }
    return {"status": {"conditions": [condition]}}


def event_about(node: Node, device: str, event_id: str, message: str, now: float, *, isolated: bool) -> dict[str, Any]:
    """Returns the Event; the same fact always has the same name, so that repeated reports make one Event."""
    name = node["metadata"]["name"]
    fact = json.dumps([name, device, event_id, isolated])
    digest = hashlib.sha256(fact.encode()).hexdigest()[:20]
    about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"].get("uid", "")}
    reason, kind = ("AsdIsolated", "Warning") if isolated else ("AsdReleased", "Normal")
    return {
        **{"apiVersion": "v1", "kind": "Event", "involvedObject": about, "source": {"component": COMPONENT}},
        "metadata": {"name": f"{name[:_LONGEST_NAME].rstrip('.-')}.{digest}", "namespace": "default"},
        **{"reason": reason, "type": kind, "message": plain(message, _LONGEST_MESSAGE), "count": 1},
        **dict.fromkeys(("firstTimestamp", "lastTimestamp"), _time(now)),
    }


def _metadata(node: Node, marks: Marks) -> dict[str, Any]:
    text = json.dumps({"devices": marks}, sort_keys=True) if marks else None
    return {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": {ANNOTATION: text}}


def _spec(node: Node) -> Mapping[str, Any]:
    return node.get("spec") or {}


def _is_tainted(node: Node) -> bool:
    return any(taint.get("key") == TAINT for taint in _spec(node).get("taints") or [])


def _taints_of_others(node: Node) -> list[dict[str, Any]]:
    return [taint for taint in _spec(node).get("taints") or [] if taint.get("key") != TAINT]


def _time(now: float) -> str:
    return datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

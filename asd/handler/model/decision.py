"""Decision of the handler about one event, and its reason."""

import json
from dataclasses import dataclass

from asd.isolator import Device
from asd.records import time_text

ACTIONS = {
    "duplicate": "the event was taken in before",
    "noted": "it has no consequence",
    "stale": "it is too old to be a reason",
    "strike": "it counts as a strike, or belongs to one",
    "waiting": "enough strikes, unless others of the job have one too within the next seconds",
    "software": "software or data is the cause: strikes are revoked and no device is isolated",
    "passed": "a stress test found nothing wrong; the strikes stay",
    "isolating": "the device is to be isolated; the scheduler has not done it yet",
    "isolated": "the device is isolated",
    "would-isolate": "dry run: it would have been isolated",
    "merged": "the device is already isolated, or about to be",
    "breaker": "too many devices of this node, or devices of too many nodes, are isolated: only reported",
    "others": "someone else isolated the device, so it is left alone until they release it",
    "dropped": "the hardware of the verdict was replaced, so the new one is not isolated for it",
    "failed": "the scheduler fails or refuses; it is retried until a person drops it",
    "test-wanted": "the device had no fault for long enough, and is released after it passes a stress test",
    "releasing": "the device is to be released; the scheduler has not done it yet",
    "released": "the device was released",
    "problem": "the handler could not do a part of its work",
}
"""Every action with its meaning, which is also the reason where none is given."""

NEWS = frozenset(ACTIONS) - {"duplicate", "noted", "stale", "strike", "merged"}
"""The actions that people want to hear about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision."""

    action: str  # one of `ACTIONS`
    reason: str  # what was decided and why, in one sentence
    time: float  # when, in seconds since the epoch, by the handler's clock
    device: Device | None = None  # the device it is about; None when it is about none
    event_id: str = ""  # id of the event that led to it; empty when none did
    case: int = 0  # number of the device's case; 0 without one

    def to_json(self) -> str:
        """Returns one line of JSON."""
        time = time_text(self.time, "milliseconds")
        device = self.device._asdict() if self.device else None
        told = {"time": time, "action": self.action, "device": device, "event": self.event_id, "reason": self.reason}
        return json.dumps(told, ensure_ascii=False)

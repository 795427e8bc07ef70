"""Finds why an attempt ended, from its events alone; the fault handler decides about the device.

| events of the attempt | finding |
|---|---|
| a replay says persistent, or the device was isolated | persistent |
| a replay of the last step says transient or software | the same |
| a first-level anomaly of one rank, and no verdict | suspect |
| ... and a replay that could not tell | undetermined |
| first-level anomalies of several ranks, which their comparison could not distinguish | unclear |
| nothing | None: it crashed, hung or was ended |

At most one device is blamed for one attempt: a second bad one shows in the next attempt.
"""

from collections.abc import Sequence
from typing import NamedTuple

from asd.diagnosis.groups import named
from asd.event import Event
from asd.verdict import Level

_GAP = 10  # steps; signs of one fault are no further apart


class Cause(NamedTuple):
    """Cause of the end of an attempt."""

    kind: str  # `persistent`, `transient`, `software`, `suspect`, `undetermined` or `unclear`
    reason: str  # reason as text, without a full stop
    event: Event  # event that shows it
    device: int = -1  # number of the device; -1 for none
    step: int = 0  # first step whose weights may have the fault in them; 0 if unknown


def evidence(events: Sequence[Event], devices: Sequence[int]) -> list[Event]:
    """Returns the events for the fault handler: verdicts, and the anomalies of ranks at fault.

    A wrong gradient reaches every rank in the end. Among ranks with anomalies in one step only those that a replay
    names count, or else a single one; none if there are several.
    """
    found = [each for each in _of_ranks(events, devices) if each.kind == "replay" and each.verdict]
    for step, broken in _broken(events, devices).items():
        guilty = {each.rank for each in found if each.step == step and each.verdict in ("persistent", "transient")}
        raised = {each.rank for each in broken}
        guilty |= raised if not guilty and len(raised) == 1 else set()
        found += [each for each in broken if each.rank in guilty]
    return sorted(found, key=lambda event: event.time)


def find_urgent(events: Sequence[Event], devices: Sequence[int]) -> Cause | None:
    """Returns the cause to end an attempt while its ranks go on: a device that is known to be bad, else None."""
    for event in _of_ranks(events, devices):
        if event.kind == "isolation" or (event.kind == "replay" and event.verdict == "persistent"):
            found = f"the replay of step {event.step} found persistent hardware"
            reason = f"it was isolated ({event.reason})" if event.kind == "isolation" else found
            return Cause("persistent", reason, event, devices[event.rank], _sign(events, event))
    return None


def find_cause(events: Sequence[Event], devices: Sequence[int]) -> Cause | None:
    """Returns why the attempt ended; None if the events do not show it."""
    urgent = find_urgent(events, devices)
    if urgent is not None:
        return urgent
    broken = _broken(events, devices)
    replays = [event for event in _of_ranks(events, devices) if event.kind == "replay" and event.verdict in _WORDS]
    last = max([*broken, *(event.step for event in replays)], default=0)
    for replay in replays:
        if replay.step == last:
            reason = f"the replay of step {last} found {_WORDS[replay.verdict]}"
            device = devices[replay.rank] if replay.verdict == "transient" else -1
            return Cause(replay.verdict, reason, replay, device, _sign(events, replay))
    if last not in broken:
        return None
    first, raised = broken[last][0], sorted({event.rank for event in broken[last]})
    if len(raised) > 1:
        return Cause("unclear", f"{named(raised)} broke a limit, and none of them can be named", first, -1, last)
    reason = f"{first.checkpoint} had the value {first.value:.6g} in step {last}, and no replay says why"
    replayed = any(each.kind == "replay" and (each.rank, each.step) == (first.rank, last) for each in events)
    return Cause("undetermined" if replayed else "suspect", reason, first, devices[first.rank], _sign(events, first))


def _of_ranks(events: Sequence[Event], devices: Sequence[int]) -> list[Event]:
    return [event for event in events if 0 <= event.rank < len(devices)]


def _broken(events: Sequence[Event], devices: Sequence[int]) -> dict[int, list[Event]]:
    """Returns the first-level anomalies, by step."""
    found: dict[int, list[Event]] = {}
    for event in _of_ranks(events, devices):
        if event.kind == "anomaly" and event.level is Level.ERROR:
            found.setdefault(event.step, []).append(event)
    return found


def _sign(events: Sequence[Event], found: Event) -> int:
    """Returns the step of the first sign of the fault in the event `found`.

    Refused anomalies left nothing in the weights; second-level and applied ones may have.
    """
    signs = {
        event.step
        for event in events
        if event.kind == "anomaly" and event.rank == found.rank and not (event.harmless and event.level is Level.ERROR)
    }
    step = found.step
    for sign in sorted(signs, reverse=True):
        if step and step - _GAP <= sign < step:
            step = sign
    return step


_WORDS = {"software": "software or data", "transient": "hardware that failed once"}

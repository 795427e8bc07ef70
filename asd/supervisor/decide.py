"""Why an attempt ended, from its events alone.

| events of the attempt | finding | what follows |
|---|---|---|
| the device was isolated, or a replay says persistent | persistent | it is left out |
| a replay says transient | transient | a strike, the same devices again |
| a replay says software | software | nobody is left out |
| a first-level anomaly of one rank, no verdict | suspect | a strike, and another device takes its place if there is one |
| ... the same step, value and checkpoint as before, on another device | software | what was held against the first is revoked |
| ... the same as before on the same device, under another rank | persistent | it is left out |
| first-level anomalies of several ranks, none stands out | unclear | nobody is left out |
| nothing | None | it crashed, hung or was ended |

At most one device is blamed for one attempt: if there is a second, the next attempt shows it.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asd.attribution import Seen, attribute
from asd.event import Event
from asd.verdict import Level

__all__ = ["FINDINGS", "Finding", "Mark", "find_cause", "find_urgent"]

FINDINGS = ("persistent", "transient", "software", "suspect", "unclear")
_GAP = 10  # steps; signs of one fault are no further apart


class Mark(NamedTuple):
    """What is remembered of an anomaly without a verdict, to know it again.

    Attributes:
        run, step, checkpoint, value, rank: As in `asd.Event`; the value as text, for `nan` equals nothing.
        device: The device's number.
    """

    run: str
    step: int
    checkpoint: str
    value: str
    rank: int
    device: int


class Finding(NamedTuple):
    """Why an attempt ended.

    Attributes:
        kind: One of `FINDINGS`.
        reason: In words, without a full stop.
        event: The event that says so.
        device: Number of the device it is about; -1 for none.
        step: The step of the fault's first sign; 0 when it is not known.
        again: Whether the same was seen in an attempt before, so that trying once more is in vain.
    """

    kind: str
    reason: str
    event: Event
    device: int = -1
    step: int = 0
    again: bool = False

    def mark(self) -> Mark:
        """What to remember of it."""
        event = self.event
        return Mark(event.run, event.step, event.checkpoint, repr(event.value), event.rank, self.device)


def find_urgent(events: Sequence[Event], devices: Sequence[int]) -> Finding | None:
    """What ends an attempt at once even if the ranks go on: a device that is known to be bad.

    Args:
        events: The events of the attempt.
        devices: The device of each rank.
    """
    for event in events:
        if not 0 <= event.rank < len(devices):
            continue
        device = devices[event.rank]
        if event.kind == "isolation":
            return Finding("persistent", f"it was isolated ({event.reason})", event, device, _sign(events, event))
        if event.kind == "replay" and event.verdict == "persistent":
            reason = f"the replay of step {event.step} found persistent hardware"
            return Finding("persistent", reason, event, device, _sign(events, event))
    return None


def find_cause(events: Sequence[Event], devices: Sequence[int], marks: Sequence[Mark] = ()) -> Finding | None:
    """Why the attempt ended; None when the events don't say.

    Args:
        events: The events of the attempt, in which a first-level anomaly ends the training.
        devices: The device of each rank.
        marks: What was found without a verdict in the attempts before.
    """
    urgent = find_urgent(events, devices)
    if urgent is not None:
        return urgent
    broken = [event for event in events if event.kind == "anomaly" and event.level is Level.ERROR]
    broken = [event for event in broken if 0 <= event.rank < len(devices)]
    replays = [event for event in events if event.kind == "replay" and event.verdict in ("software", "transient")]
    last = max((event.step for event in [*broken, *replays]), default=0)
    for replay in replays:
        if replay.step == last and 0 <= replay.rank < len(devices):
            reason = f"the replay of step {last} found {_WORDS[replay.verdict]}"
            device = devices[replay.rank] if replay.verdict == "transient" else -1
            return Finding(replay.verdict, reason, replay, device, _sign(events, replay))
    ending = [event for event in broken if event.step == last]
    return _without_verdict(events, ending, devices, marks) if ending else None


def _without_verdict(
    events: Sequence[Event], ending: Sequence[Event], devices: Sequence[int], marks: Sequence[Mark]
) -> Finding:
    origin, why = _origin(ending, len(devices))
    first = next(event for event in ending if origin is None or event.rank == origin)
    if origin is None:
        return Finding("unclear", why, first, -1, first.step)
    finding = Finding(
        "suspect", f"{first.checkpoint} had the value {first.value:.6g} in step {first.step}, and no replay says why",
        first, devices[origin], _sign(events, first),
    )  # fmt: skip
    mark = finding.mark()
    for before in marks:
        same = (before.step, before.checkpoint, before.value) == (mark.step, mark.checkpoint, mark.value)
        if not same or before.run == mark.run:
            continue
        if before.device != mark.device:
            reason = f"{mark.checkpoint} had the very same value in step {mark.step} on device {before.device} before"
            return finding._replace(kind="software", reason=reason, device=-1, again=True)
        if before.rank != mark.rank:
            reason = f"{mark.checkpoint} had the very same value in step {mark.step} when it was rank {before.rank}"
            return finding._replace(kind="persistent", reason=reason)
    return finding


def _origin(ending: Sequence[Event], ranks: int) -> tuple[int | None, str]:
    """Which rank it was, and why or why not."""
    raised = sorted({event.rank for event in ending})
    if len(raised) == 1:
        return raised[0], ""
    step: dict[int, dict[str, Seen]] = {rank: {} for rank in range(ranks)}
    for event in ending:
        step[event.rank].setdefault(event.checkpoint, Seen(len(step[event.rank]), event.value, broken=True))
        limit = event.limits[0] if event.limits else 0.0
        for silent in set(range(ranks)) - set(raised):  # what they saw is not known, but it was below the limit
            step[silent].setdefault(event.checkpoint, Seen(len(step[silent]), limit, broken=False))
    found = attribute(step)
    return found.origin, found.reason


def _sign(events: Sequence[Event], found: Event) -> int:
    """The step of the first sign of the fault that was found in `found`.

    Anomalies that were refused left nothing behind; those of the second level and those that were applied may have.
    """
    signs = {
        event.step
        for event in events
        if event.kind == "anomaly" and event.rank == found.rank and not (event.refused and event.level is Level.ERROR)
    }
    step = found.step
    for sign in sorted(signs, reverse=True):
        if step and step - _GAP <= sign < step:
            step = sign
    return step


_WORDS = {"software": "software or data", "transient": "hardware that failed once"}

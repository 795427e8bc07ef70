"""What the fault handler would have done about past events: its clock shows their times, its engine never fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asd.event import Event
from asd.handler import Decision, FaultHandler, NoIsolator, Policy, Store

__all__ = ["TakenOut", "simulate"]

_MOMENT = 1e-3  # seconds


class TakenOut(NamedTuple):
    """The first time that the handler isolated a device.

    Attributes:
        host: Its machine.
        device: Its name there.
        rank: Its rank then; -1 when it is not known.
        time: When, in seconds since the epoch.
        why: The decision's sentence.
    """

    host: str
    device: str
    rank: int
    time: float
    why: str


class _Clock:
    """Shows the time of the event that is being handled."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def simulate(events: Sequence[Event], policy: Policy) -> list[TakenOut]:
    """Runs `events` through `policy`; returns the devices that are isolated, in order."""
    ordered = sorted({event.id: event for event in events}.values(), key=lambda event: event.time)
    clock, store = _Clock(), Store(None)
    handler = FaultHandler(store, policy, NoIsolator(store), lambda _event: None, clock, from_beginning=True)
    decisions: list[Decision] = []
    try:
        for event in ordered:
            decisions += _tick_until(handler, clock, event.time)
            decisions.append(handler.handle(event))
        while (due := handler.triage.strikes.next_due()) is not None:
            decisions += _tick_until(handler, clock, due + 2 * _MOMENT)
    finally:
        handler.close()
    found: dict[tuple[str, str, int], TakenOut] = {}
    for each in decisions:
        if each.action == "isolated" and each.device is not None:
            found.setdefault(each.device, TakenOut(*each.device, each.time, each.reason))
    return list(found.values())


def _tick_until(handler: FaultHandler, clock: _Clock, until: float) -> list[Decision]:
    """Lets the time pass, with a stop wherever a strike has waited long enough; what is at `until` comes first."""
    decisions: list[Decision] = []
    while (due := handler.triage.strikes.next_due()) is not None and due < until:
        clock.now = max(clock.now, due)
        decisions += handler.tick()
    clock.now = max(clock.now, until - _MOMENT)
    decisions += handler.tick()
    clock.now = max(clock.now, until)
    return decisions

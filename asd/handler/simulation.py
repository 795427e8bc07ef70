"""What a policy would have done about past events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asd.event import Event
from asd.handler.act.no_isolator import NoIsolator
from asd.handler.db.store import Store
from asd.handler.decision import NEWS, Decision
from asd.handler.handler import FaultHandler
from asd.handler.identity import device_key
from asd.handler.policy import Policy

__all__ = ["Comparison", "PolicyOutcome", "simulate"]

_TOOK_OUT = "isolated"
_MOMENT = 1e-3  # seconds


class Comparison(NamedTuple):
    """One device that the policy would have isolated, that was isolated, or both.

    Attributes:
        host: Its machine.
        device: Its name there.
        rank: Its rank then; -1 when it is not known.
        would: When it would have been isolated, in seconds since the epoch; None when not.
        why: The decision's sentence; empty when it would not.
        was: When it was isolated first, by the log; None when it was not.
    """

    host: str
    device: str
    rank: int
    would: float | None
    why: str
    was: float | None


class PolicyOutcome(NamedTuple):
    """What came out.

    Attributes:
        devices: By the time of the first isolation.
        decisions: Everything worth telling, in order.
        events: How many different events there were.
    """

    devices: list[Comparison]
    decisions: list[Decision]
    events: int


def simulate(events: Sequence[Event], policy: Policy) -> PolicyOutcome:
    """Runs `events` through `policy`, with a clock that shows their times and an engine that never fails."""
    ordered = sorted({event.id: event for event in events}.values(), key=lambda event: event.time)
    clock = _Clock()
    store = Store(None)
    try:
        handler = FaultHandler(store, policy, NoIsolator(store), lambda _event: None, clock, from_beginning=True)
        decisions: list[Decision] = []
        for event in ordered:
            decisions += _tick_until(handler, clock, event.time)
            decisions.append(handler.handle(event))
        while (due := handler.next_due()) is not None:
            decisions += _tick_until(handler, clock, due + 2 * _MOMENT)
    finally:
        handler.close()
    return PolicyOutcome(
        _compare(decisions, ordered), [each for each in decisions if each.action in NEWS], len(ordered)
    )


class _Clock:
    """Shows the time of the event that is being handled."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _tick_until(handler: FaultHandler, clock: _Clock, until: float) -> list[Decision]:
    """Lets the time pass, with a stop wherever a strike has waited long enough; what is at `until` comes first."""
    decisions: list[Decision] = []
    while (due := handler.next_due()) is not None and due < until:
        clock.now = max(clock.now, due)
        decisions += handler.tick()
    clock.now = max(clock.now, until - _MOMENT)
    decisions += handler.tick()
    clock.now = max(clock.now, until)
    return decisions


def _compare(decisions: Sequence[Decision], events: Sequence[Event]) -> list[Comparison]:
    found: dict[tuple[str, str, int], Comparison] = {}
    for decision in decisions:
        if decision.action == _TOOK_OUT and decision.device is not None:
            device = decision.device
            found.setdefault(
                device_key(*device), Comparison(*device, would=decision.time, why=decision.reason, was=None)
            )
    for event in events:
        if event.kind == "isolation":
            key = device_key(event.host, event.device, event.rank)
            known = found.get(key) or Comparison(event.host, event.device, event.rank, None, "", None)
            if known.was is None:
                found[key] = known._replace(was=event.time)
    return sorted(found.values(), key=lambda each: min(time for time in (each.would, each.was) if time is not None))

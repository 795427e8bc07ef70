"""Events for tests."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from asd import Event, Level
from asd.origin import FromOrigin, Origin

_T = TypeVar("_T", bound=FromOrigin)
_WHERE = tuple(each.name for each in fields(Origin))

USUAL = {
    **{"run": "run1", "rank": 0, "host": "node7", "device": "Ascend:0", "checkpoint": "a", "value": 2e6},
    **{"limits": (1e6,), "level": Level.ERROR, "kind": "anomaly", "rule": "threshold", "feature": "l2"},
    **{"reason": "r", "refused": True, "time": float},
}


def event_maker(**usual: Any) -> Callable[..., Event]:
    """A function that makes events with these fields, unless it is told otherwise: the step, host, device and rank in
    this order, others by name. A field that is a function is called with the step.
    """

    def event(step=1, *where, **changes):
        fields = {**USUAL, **usual, **dict(zip(("host", "device", "rank"), where, strict=False)), **changes}
        made = {name: field(step) if callable(field) else field for name, field in fields.items()}
        return made_of(Event, step=step, **made)

    return event


def growing(step: int) -> float:
    """A value by which the steps can be told apart."""
    return 2e6 + step


def made_of(kind: type[_T], /, **values: Any) -> _T:
    """An event, status or manifest of its fields, among them those of its origin."""
    where = {name: values.pop(name) for name in _WHERE if name in values}
    return kind(origin=Origin(**where), **values)


def moved(event: Event, **where: Any) -> Event:
    """The event of another run, rank, host or device."""
    return replace(event, origin=replace(event.origin, **where))

"""Events as the store keeps them: a fifth of the time and half the size of a CloudEvent."""

from __future__ import annotations

import json
from dataclasses import fields

from asd.event import Event
from asd.verdict import Level

__all__ = ["pack", "unpack"]

_NAMES = tuple(field.name for field in fields(Event))
_WITHOUT_FORM = len(_NAMES) - 1  # what an earlier version kept, whose ids were made of less


def pack(event: Event) -> str:
    """All fields of an event in one text."""
    return json.dumps([getattr(event, name) for name in _NAMES])


def unpack(text: str) -> Event:
    """Reads what `pack` wrote."""
    kept = json.loads(text)
    values = dict(zip(_NAMES, [*kept, 1] if len(kept) == _WITHOUT_FORM else kept, strict=True))
    values["limits"] = tuple(values["limits"])
    values["level"] = Level(values["level"])
    return Event(**values)

"""What finding, ordering and filtering need of an event, read quickly from its line."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from asd import fault_code
from asd.event import KINDS, LEVEL_NAMES, VERDICTS, Event
from asd.records import Count, Finite, Flag, Rank, Text

__all__ = ["EventHead", "read_head"]

_LEVELS = tuple(LEVEL_NAMES.values())
_NONE_OR_VERDICTS = ("", *VERDICTS)


class EventHead(msgspec.Struct, gc=False):
    """An event's fields as they stand in its line, see `asd.Event`; `level` is the name of the level."""

    run: Text
    rank: Rank
    host: Text
    device: Text
    step: Count
    checkpoint: Text
    value: Finite
    limits: list[Finite]
    level: Literal[_LEVELS]  # type: ignore[valid-type]
    kind: Literal[KINDS]  # type: ignore[valid-type]
    rule: Text
    feature: Text
    reason: Text
    refused: Flag
    code: Text
    micro_batch: Count = 0
    verdict: Literal[_NONE_OR_VERDICTS] = ""  # type: ignore[valid-type]
    evidence: Text = ""
    key: Text = ""
    id_form: Annotated[int, Meta(ge=1, le=2)] = 1
    time: float = 0.0

    @property
    def identity(self) -> bytes:
        """The same for two events exactly when their ids are; made in a sixth of the time."""
        place = (self.host, self.device) if self.id_form > 1 else ("", "")
        facts = (self.run, self.rank, self.checkpoint, self.step, self.kind, self.key, *place)
        try:
            text = msgspec.json.encode(facts)
        except UnicodeEncodeError:  # half a surrogate pair
            text = repr(facts).encode(errors="backslashreplace")
        return hashlib.blake2b(text, digest_size=16).digest()


class _Line(msgspec.Struct, gc=False):
    specversion: Literal["1.0"]
    time: str
    data: EventHead


_decode = msgspec.json.Decoder(_Line).decode


def read_head(text: str) -> EventHead:
    """What `Event.from_json` reads and checks, in a fifth of the time.

    Whatever is not plain, such as a value that is `inf`, a time in another zone or a line that is wrong, is left to
    `Event.from_json`.

    Raises:
        StateError: As there.
    """
    try:
        line = _decode(text)
        when = datetime.fromisoformat(line.time)
    except ValueError:  # msgspec's errors are such, too
        return _slowly(text)
    head = line.data
    if when.tzinfo is not timezone.utc or not fault_code.is_code(head.code):
        return _slowly(text)
    head.time = when.timestamp()
    return head


def _slowly(text: str) -> EventHead:
    event = Event.from_json(text)
    fields = {name: getattr(event, name) for name in EventHead.__struct_fields__}
    return EventHead(**{**fields, "level": LEVEL_NAMES[event.level]})

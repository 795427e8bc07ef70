"""Counts of one rank: the numbers behind its metrics."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, get_type_hints

from msgspec import Meta

from asd.judge.protections import Protections
from asd.origin import FromOrigin, Origin, Short
from asd.records import Count, Finite, Flag, Number, Text, fill, members, plain, read
from asd.verdict import Verdict

VERSION = 1


def _by_key(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part)
    return dict(counts)


def _newest(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


def _protections(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return Protections.together(parts) if any(parts) else {}


class _Together(NamedTuple):
    """Function that merges a field of several monitors; without it the last monitor's value counts."""

    of: Callable[[Sequence[Any]], Any]


_Sum = Annotated[Count, _Together(sum)]
_Seconds = Annotated[Finite, _Together(sum)]
_Latest = Annotated[Finite, _Together(max)]
_Counts = Annotated[dict[str, Count], Meta(description="an object of whole numbers"), _Together(_by_key)]
_Pairs = Annotated[
    dict[str, tuple[Number, Number]], Meta(description="an object of pairs of numbers"), _Together(_newest)
]
_Protections = Annotated[dict[str, Any], Meta(description="an object"), _Together(_protections)]


@dataclass(slots=True, kw_only=True)
class Status(FromOrigin):
    """Counts of one rank since its training began."""

    origin: Origin  # run, rank, host and device; these are attributes of the status too
    pid: Count = 0  # number of the process
    # time at which the training was attached, in seconds since the epoch
    started: Annotated[Finite, _Together(min)] = 0.0
    written: _Latest = 0.0  # time of the last update, in seconds since the epoch
    active: Annotated[Flag, _Together(max)] = False  # whether a training runs, from before its first step to its end
    unjudged: Annotated[Flag, _Together(max)] = False  # whether updates are made without being judged
    step: Annotated[Count, _Together(max)] = 0  # the last judged step
    steps: _Sum = 0  # steps judged
    checks: _Sum = 0  # values judged
    non_finite: _Sum = 0  # values among them that were not finite
    # anomalies of this rank itself by level, `first` and `second`
    anomalies: _Counts = field(default_factory=lambda: {"first": 0, "second": 0})
    refused: _Sum = 0  # updates refused
    healed: _Sum = 0  # steps with a rerun that counts, and flips of bits in memory that were put back
    problems: _Sum = 0  # problems of the detector itself
    dropped: _Counts = field(default_factory=dict)  # events and steps that a sink lost, by the sink's name
    evidence_dropped: _Sum = 0  # evidence that was not kept, because there was too much or it could not be written
    last_check: _Latest = 0.0  # time of the last judged value, in seconds since the epoch; 0 before the first
    step_seconds: _Seconds = 0.0  # time from the end of each step to the end of the next, summed
    check_seconds: _Seconds = 0.0  # host time of the detector within `step_seconds`, summed
    # last value and limit of each checkpoint; either may be `inf`, the value `nan`
    checkpoints: _Pairs = field(default_factory=dict)
    # protections of the training, see `Protections`; empty before they are known
    protections: _Protections = field(default_factory=dict)
    machine: Text = ""  # see `asd.origin.machine_name`; of older versions the host name alone; empty if unknown
    cann: Short = ""  # version of CANN; empty without it

    def add(self, checkpoint: str, verdict: Verdict) -> None:
        """Counts one judged value."""
        self.checks += 1
        self.checkpoints[checkpoint] = verdict.value, verdict.limit
        self.non_finite += not math.isfinite(verdict.value)

    @classmethod
    def together(cls, parts: Iterable[Status]) -> Status:
        """Merges the statuses of all monitors of a process: sums of counts, else the last value."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        hints = get_type_hints(cls, include_extras=True).items()
        notes = [(name, note) for name, hint in hints for note in getattr(hint, "__metadata__", ())]
        how = {name: note.of for name, note in notes if isinstance(note, _Together)}
        return replace(parts[-1], **{name: of([getattr(part, name) for part in parts]) for name, of in how.items()})

    def to_json(self) -> str:
        """Returns one JSON object; `inf` and `nan` become strings."""
        data = members(self) | {"checkpoints": plain(self.checkpoints)}
        return json.dumps({"version": VERSION, **data}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Status:
        """Reads what `to_json` wrote; raises StateError, which names the field."""
        status = read(text, cls, "status", "the JSON object a rank writes", version=VERSION, numbers=("checkpoints",))
        known = fill(Protections, status.protections, "protections")
        status.protections = known.to_json() if status.protections else {}  # what is not known may be anything
        return status

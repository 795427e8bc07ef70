"""What one rank has counted so far: the numbers behind its metrics.

The monitor keeps one `Status` and adds to it in every step. It leaves the process as one JSON object, so an agent can
serve the metrics of many ranks, living or dead, without taking part in any training.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from asd.errors import StateError
from asd.protections import Protections
from asd.verdict import Verdict

__all__ = ["RATIO_BOUNDS", "Status"]

VERSION = 1
RATIO_BOUNDS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0, 10.0, 1e3)
"""Upper bounds of the histogram of value / first-level limit; one more bucket holds what is larger."""
_SUMS = (
    "steps", "checks", "non_finite", "refused", "problems", "evidence_dropped", "step_seconds", "check_seconds",
    "ratio_sum",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Status:
    """The counts of one rank since its process began.

    Attributes:
        run, rank, host, device: As in `asd.Event`.
        pid: Number of the process.
        started: When the training was attached, in seconds since the epoch.
        written: When this was last true, in seconds since the epoch.
        active: Whether a training runs, from before its first step to its end.
        step: The last judged step.
        steps: Steps judged.
        checks: Values judged.
        non_finite: Values among them that were not finite.
        anomalies: Anomalies of this rank's own by level, `first` and `second`.
        refused: Updates refused.
        problems: Problems of the detector itself.
        dropped: Events and steps that a sink could not take, by the sink's name.
        evidence_dropped: Evidence that was not kept, because there was too much or it could not be written.
        last_check: When a value was last judged, in seconds since the epoch; 0 before the first.
        step_seconds: Time from the end of a step to the end of the next, summed.
        check_seconds: Time of the detector in these, summed: on the host, and in the CPU kernel where it is used.
        ratios: How many values fell into each bucket of value / limit, see `RATIO_BOUNDS`; finite values only.
        ratio_sum: Sum of value / limit over these.
        checkpoints: Per checkpoint its last value and its limit then, either may be `inf`, the value `nan`.
        protections: What protects the training, see `asd.protections`; empty before that is known.
    """

    run: str
    rank: int
    host: str
    device: str
    pid: int = 0
    started: float = 0.0
    written: float = 0.0
    active: bool = False
    step: int = 0
    steps: int = 0
    checks: int = 0
    non_finite: int = 0
    anomalies: dict[str, int] = field(default_factory=lambda: {"first": 0, "second": 0})
    refused: int = 0
    problems: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    evidence_dropped: int = 0
    last_check: float = 0.0
    step_seconds: float = 0.0
    check_seconds: float = 0.0
    ratios: list[int] = field(default_factory=lambda: [0] * (len(RATIO_BOUNDS) + 1))
    ratio_sum: float = 0.0
    checkpoints: dict[str, tuple[float, float]] = field(default_factory=dict)
    protections: dict[str, Any] = field(default_factory=dict)

    def add(self, checkpoint: str, verdict: Verdict) -> None:
        """Counts one judged value."""
        self.checks += 1
        value, limit = verdict.value, verdict.limit
        self.checkpoints[checkpoint] = value, limit
        if not math.isfinite(value):
            self.non_finite += 1  # never in the histogram: its sum would be spoilt for good
        elif 0 < limit < math.inf:
            ratio = value / limit
            if math.isfinite(self.ratio_sum + ratio):  # a denormal limit makes infinity of a finite value
                self.ratios[bisect.bisect_left(RATIO_BOUNDS, ratio)] += 1
                self.ratio_sum += ratio

    @classmethod
    def together(cls, parts: Iterable[Status]) -> Status:
        """What all monitors of a process have counted: sums, and the last of what is no count."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        pairs = (pair for part in parts for pair in part.checkpoints.items())
        whole = replace(parts[-1], started=min(part.started for part in parts), checkpoints=dict(pairs))
        for name in ("written", "active", "step", "last_check"):
            setattr(whole, name, max(getattr(part, name) for part in parts))
        for name in _SUMS:
            setattr(whole, name, sum(getattr(part, name) for part in parts))
        for name in ("anomalies", "dropped"):
            counts: dict[str, int] = {}
            for key, count in (item for part in parts for item in getattr(part, name).items()):
                counts[key] = counts.get(key, 0) + count
            setattr(whole, name, counts)
        if any(part.protections for part in parts):
            whole.protections = Protections.together(part.protections for part in parts)
        whole.ratios = [sum(counts) for counts in zip(*(part.ratios for part in parts), strict=True)]
        return whole

    def to_json(self) -> str:
        """One JSON object; `inf` and `nan` become strings."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        data["checkpoints"] = {name: [_plain(number) for number in pair] for name, pair in self.checkpoints.items()}
        return json.dumps({"version": VERSION, **data}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Status:
        """Reads what `to_json` wrote.

        Raises:
            StateError: The text is not such an object; the sentence names the field.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise StateError(f"not a status: {error}; valid is the JSON object a rank writes.") from error
        if not isinstance(data, dict) or data.pop("version", None) != VERSION:
            raise StateError(f"not a status of version {VERSION} but {text[:80]!r}.")
        known = {each.name: _READERS[str(each.type)] for each in fields(cls) if each.name in data}
        try:
            return cls(**{name: read(name, data[name]) for name, read in known.items()})
        except TypeError as error:
            raise StateError(f"a status lacks a field: {error}.") from error


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _bad(name: str, value: object, valid: str) -> StateError:
    return StateError(f"status field {name} is {str(value)[:80]!r}; valid is {valid}.")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _bad(name, value, "a text")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad(name, value, "true or false")
    return value


def _count(name: str, value: object) -> int:
    lowest = -1 if name == "rank" else 0
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value < 2**63:
        raise _bad(name, value, "a whole number")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # a whole number that no float can hold
            if math.isfinite(value):
                return float(value)
    raise _bad(name, value, "a number")


def _value(name: str, value: object) -> float:
    if isinstance(value, str) and value in {"inf", "-inf", "nan"}:
        return float(value)
    return _number(name, value)


def _counts(name: str, value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise _bad(name, value, "an object of whole numbers")
    return {key: _count(name, count) for key, count in value.items()}


def _buckets(name: str, value: object) -> list[int]:
    if not isinstance(value, list) or len(value) != len(RATIO_BOUNDS) + 1:
        raise _bad(name, value, f"a list of {len(RATIO_BOUNDS) + 1} whole numbers")
    return [_count(name, count) for count in value]


def _pairs(name: str, value: object) -> dict[str, tuple[float, float]]:
    if not isinstance(value, dict) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value.values()):
        raise _bad(name, value, "an object of pairs of numbers")
    return {key: (_value(name, pair[0]), _value(name, pair[1])) for key, pair in value.items()}


def _protections(name: str, value: object) -> dict[str, Any]:
    holds = {"on": str, "places": int, "missing": list, "unseen": list}
    if not isinstance(value, dict) or not all(isinstance(value.get(key), dict) for key in holds if value):
        raise _bad(name, value, f"an object with the objects {', '.join(holds)}")
    if not all(isinstance(each, kind) for key, kind in holds.items() for each in value.get(key, {}).values()):
        raise _bad(name, value, "texts in `on`, whole numbers in `places`, and lists in `missing` and `unseen`")
    return value


_READERS: dict[str, Any] = {
    "str": _text, "bool": _flag, "int": _count, "float": _number, "dict[str, int]": _counts, "list[int]": _buckets,
    "dict[str, tuple[float, float]]": _pairs, "dict[str, Any]": _protections,
}  # fmt: skip

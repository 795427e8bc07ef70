"""The event: one fact about one step, as others read it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timezone
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta

from asd import fault_code, older
from asd.errors import StateError
from asd.origin import UNKNOWN, FromOrigin, Hardware, Origin
from asd.records import Count, Flag, Name, Number, Rank, Text, fill, floats, members, parse, plain, read_time, time_text
from asd.verdict import Level

CODE = fault_code.CHECK_FAIL
ABNORMAL = "accuracy sensitivity feature abnormal"
"""The keyword to search the logs for, as the feature-value detection document gives it."""
HEALTH = "node type=SoC, sensor type=Check Sensor, event state=check fail"
KINDS = ("anomaly", "follower", "problem", "replay", "isolation", "recovery", "stress")
"""`anomaly`: a value of this rank broke a limit. `follower`: one did, or the update was refused, because of another
rank or an earlier step. `problem`: the detector itself could not do its work. `replay`: the step was re-run and gave a
verdict. `isolation`: the device was isolated. `recovery`: it was released. `stress`: it was tested with known-answer
tests; first-level when it computed wrongly, normal when not."""
VERDICTS = ("transient", "persistent", "software", "undetermined")
"""Verdicts of a replay: hardware that failed once, hardware that fails each time, software or data, or no cause. A
stress test that fails gives the second."""
RECOVERED_BY = ("handler", "person", "vendor")
"""Source of a recovery: the handler, which had isolated the device; a person, by `asd devices` or on the scheduler,
which alone clears its strikes; a log of the vendor, whose own alarm is over."""
CAUSES = ("change", "divergence", "loss_scale")
"""Causes seen in the values alone, not a device's fault. `change`: all sites moved by one factor, or levels change as
announced or as in an earlier attempt. `divergence`: all grew, in two steps in a row. `loss_scale`: it was not given."""
LEVEL_NAMES = {Level.NORMAL: "normal", Level.WARNING: "second", Level.ERROR: "first"}
"""Spelling of a level in JSON, in log lines and in labels of metrics."""

_LEVELS = {name: level for level, name in LEVEL_NAMES.items()}
_LONGEST_REASON = 2000
_UNSAID = ("code", "key", "hardware", "healed")
_encode = json.JSONEncoder(ensure_ascii=False).encode
_HEADS = {"anomaly": f"{ABNORMAL}: {HEALTH}", "follower": "in the wake of another anomaly"}
_ASSERTIONS = {"isolation": "occur", "recovery": "recover"}
_LINE_BREAKS = {ord(character): f"\\x{ord(character):02x}" for character in "\n\r\v\f\x85"}
"""Names may hold line breaks, a log line must not."""


@functools.lru_cache(maxsize=64, typed=True)  # of one event it is asked for several times in a row
def event_id(
    run: str, rank: int, checkpoint: str, step: int, kind: str, key: str = "", host: str = "", device: str = ""
) -> str:
    """Returns the id of an event: the same fact always gets the same id, so delivering it twice is harmless.

    The arguments are the fields of `Event` with these names.

    >>> event_id("run1", 0, "model.norm_out", 7, "anomaly", host="node7", device="Ascend:0")
    'a24e345a88ea74297597a474a2b38334'
    """
    return hashlib.sha256(json.dumps([run, rank, checkpoint, step, kind, key, host, device]).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(FromOrigin):
    """One abnormal feature value, one problem of the detector, or one finding or action about a device.

    Attributes:
        origin: Run, rank, host and device; they can be read from the event too.
        step: Training step, from 1; 0 when it is not known. For a change between two steps, the second.
        checkpoint: Name of the checked site, for example `model.layers.0.attention_norm`.
        value: The feature value, unscaled by the loss scale; may be `inf` or `nan`.
        limits: The limit that was exceeded, of the event's level; empty when there was none.
        level: `Level.ERROR` (first level), `Level.WARNING` (second level), or `Level.NORMAL` for a problem.
        kind: One of `KINDS`.
        rule: Name of the rule that judged, as in `ASD_RULE`.
        feature: Feature that the value is: `l2`, `max`, `max_square` or `score`.
        reason: Cause as text; cut after 2000 characters.
        refused: Whether the update of this step was kept away from the weights.
        time: Seconds since the epoch.
        code: Fault code, eight upper-case hex digits.
        verdict: One of `VERDICTS` in a replay or a stress test and what follows from it, else empty.
        evidence: Folder with the evidence; empty when none is kept.
        key: Distinguishes events with equal run, rank, host, device, checkpoint, step and kind; mostly empty.
        incident: The id of the event with which this one's incident began, where that was in an earlier step: of steps
            in a row with first-level anomalies, or of an attempt that ended in this step; else empty.
        cause: One of `CAUSES`, if the values show it; else empty.
        serial: Serial of the device, if the agent of its machine knows it; else empty.
        device_number: Its physical number on its machine, if the agent knows it; else -1.
        recovered_by: One of `RECOVERED_BY` in a recovery, else empty.
        hardware: Model, firmware, driver, CANN and board, where the agent knows them; they are attributes in JSON.
        healed: Whether what was wrong did no harm: a rerun of the step counts, or flipped bits were put back.
    """

    origin: Origin
    step: Count
    checkpoint: Name
    value: Number
    limits: Annotated[tuple[Number, ...], Meta(max_length=16, description="a list of at most 16 numbers")]
    level: Level
    kind: Text
    rule: Name
    feature: Name
    reason: Text
    refused: Flag
    time: float
    code: Text = CODE
    verdict: Text = ""
    evidence: Annotated[str, Meta(max_length=2048, description="a text of at most 2048 characters")] = ""
    key: Name = ""
    incident: Name = ""
    cause: Text = ""
    serial: Name = ""
    device_number: Rank = -1
    recovered_by: Text = ""
    hardware: Hardware = UNKNOWN
    healed: Flag = False

    def __post_init__(self) -> None:
        if len(self.reason) > _LONGEST_REASON:
            cut = f" ... (cut, it had {len(self.reason)} characters)"
            object.__setattr__(self, "reason", self.reason[: _LONGEST_REASON - len(cut)] + cut)
        if self.kind not in KINDS:
            raise StateError(f"event field kind is {self.kind!r}; it must be one of {', '.join(KINDS)}.")
        for name, valid in (("verdict", VERDICTS), ("recovered_by", RECOVERED_BY), ("cause", CAUSES)):
            if getattr(self, name) not in ("", *valid):
                raise StateError(f"event field {name} is {getattr(self, name)!r}; pass one of {', '.join(valid)}.")
        if not fault_code.is_code(self.code):
            raise StateError(
                f"event field code is {self.code!r}; it must be eight upper-case hex digits such as {CODE}."
            )

    @property
    def id(self) -> str:
        """Made by `event_id`: the same fact always has the same one."""
        return event_id(self.run, self.rank, self.checkpoint, self.step, self.kind, self.key, self.host, self.device)

    @property
    def harmless(self) -> bool:
        """Returns whether nothing wrong is in the weights: the update was refused, or it was healed."""
        return self.refused or self.healed

    @property
    def assertion(self) -> str:
        """Duration of the fact, in the driver's words: `occur`, `recover`, or `once`."""
        return _ASSERTIONS.get(self.kind, "once")

    def sentence(self) -> str:
        """Returns the event as one log line for people and for grep."""
        if self.kind == "problem":  # nothing in it looks like an alarm
            return f"detector problem on rank {self.rank} in step {self.step}: {self.reason}".translate(_LINE_BREAKS)
        head = _HEADS.get(self.kind, self.kind)
        limit = ",".join(map("{:.6g}".format, self.limits)) or "none"
        more = "".join(f"{name}={value} " for name, value in _optional(self).items())
        sentence = (
            f"{head}, code={self.code} level={LEVEL_NAMES[self.level]} device={self.device} rank={self.rank} "
            f"host={self.host} step={self.step} checkpoint={self.checkpoint} value={self.value:.6g} limit={limit} "
            f"feature={self.feature} rule={self.rule} refused={'yes' if self.refused else 'no'} "
            f"{'healed=yes ' if self.healed else ''}run={self.run} "
            f"{more}event={self.id} reason={json.dumps(self.reason, ensure_ascii=False)}"
        )
        return sentence.translate(_LINE_BREAKS)

    def to_json(self) -> str:
        """Returns a line of JSON, a CloudEvent 1.0; `inf` and `nan` become strings, as JSON has no such numbers."""
        data = members(self)
        del data["time"]
        data |= {
            "value": float(self.value),
            "limits": list(map(float, self.limits)),
            "level": LEVEL_NAMES[self.level],
            **fault_code.decode(self.code)._asdict(),
            "assertion": self.assertion,
        }
        return _encode(
            {
                "specversion": "1.0",
                "id": self.id,
                "source": f"/asd/{quote(self.run, safe='', errors='replace')}/{self.rank}",
                "type": f"org.mindspore.asd.{self.kind}",
                "subject": self.checkpoint or "detector",
                "time": time_text(self.time, "microseconds"),
                "datacontenttype": "application/json",
                "faultcode": self.code,
                "data": plain(data),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Event:
        """Reads what `to_json` wrote.

        Raises:
            StateError: The text is not such an event; the sentence names the field.
        """
        return cls.from_cloud_event(parse(text, "event", "one CloudEvent in JSON"))

    @classmethod
    def from_cloud_event(cls, cloud_event: Mapping[str, Any]) -> Event:
        """Reads the object that its JSON was parsed to.

        Raises:
            StateError: It is not such an event; the sentence names the field.
        """
        if cloud_event.get("specversion") != "1.0":
            raise StateError(f"event field specversion is {cloud_event.get('specversion')!r:.80}; it must be 1.0.")
        data, when = cloud_event.get("data"), _when(cloud_event.get("time"))
        if not isinstance(data, dict):
            raise StateError(f"event field data is {data!r:.80}; it must be a JSON object.")
        level = data.get("level")
        if not isinstance(level, str) or level not in _LEVELS:
            raise StateError(f"event field level is {level!r:.80}; it must be one of {', '.join(_LEVELS)}.")
        known = {**data, "level": _LEVELS[level], "time": when, "code": data.get("code")}
        if data.get("kind") == "recovery" and "recovered_by" not in data:  # of a version that had no such field
            known["recovered_by"] = older.recovered_by(data.get("rule"), data.get("reason"))
        known |= floats({name: data[name] for name in ("value", "limits") if name in data}, "value", "limits")
        return fill(cls, known, "event")


def _optional(event: Event) -> dict[str, Any]:
    """Returns the fields that a log line has only where they say something."""
    known = ((each.name, each.default) for each in fields(event) if each.name not in _UNSAID)
    return {name: value for name, usual in known if usual not in (MISSING, value := getattr(event, name))}


def _when(value: Any) -> float:
    with contextlib.suppress(ValueError, TypeError, AttributeError, OverflowError):
        found = read_time(value)
        if found.tzinfo is not None:
            return datetime.fromtimestamp(found.timestamp(), timezone.utc).timestamp()  # as it is written
    raise StateError(f"event field time is {value!r:.80}; it must be a time such as 2026-01-31T12:00:00+00:00.")

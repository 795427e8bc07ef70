"""Record that a handler leaves to its successor: the acts of people and of time; both have seen the events."""

import base64
import zlib
from dataclasses import asdict, replace
from typing import Any, Literal, Protocol

import msgspec

from asd.errors import StateError
from asd.event import Event
from asd.handler.db.cases import NOBODY, Case, Cases
from asd.handler.db.schema import of_sentences
from asd.handler.db.store import Store
from asd.handler.decide.hardware import KnownDevices

_MOST_CASES = 500
_MOST_CHARACTERS = 200_000  # Kubernetes takes annotations of 256 KiB in all
_MOST_CLOSED = 100  # the circuit breaker counts those of a day
_MOST_CLEARED = 2000
_ROUND_SECONDS = 30.0
_STEADY_SECONDS = 60.0  # clocks of two machines that are no further apart agree
_META = ("ignore_before", "breaker_opened", "breaker_reset")
_BEFORE = 4  # what the version before left, which is taken over
_OPEN = ("isolating", "others", "isolated", "releasing")


class Leadership(Protocol):
    """Choice of one handler that acts; the others take in the same events and stand by."""

    holder: str  # the handler that acts, as last seen; empty for none
    record: str  # record that the last acting handler left for us, made by `record_of`

    @property
    def acts(self) -> bool:
        """True where we act, for at least this moment."""

    def confirm(self, record: str) -> bool:
        """Leaves `record` now; returns whether it was accepted, which proves that no other handler acts."""

    def leave(self, record: str) -> None:
        """Leaves `record` soon."""


_Hardware = tuple[str, str, int, str]  # host, name, rank and serial of a device


class _Record(msgspec.Struct):
    form: Literal[5]
    now: float
    meta: dict[str, float]
    cleared: list[tuple[_Hardware, float]]
    cases: list[tuple[_Hardware, Case]]


_OWN: dict[str, Any] = {"n": 0, "device": 0, "named": NOBODY, "attempts": 0, "next_try": 0.0, "error": ""}
"""Fields of a case that matter to one handler alone; they are not left."""


def record_of(store: Store, now: float) -> str:
    """Returns the record as letters and digits; within half a minute, equal states give equal texts."""
    cases = Cases(store)
    cleared = store.db.execute(
        "SELECT n, cleared FROM device WHERE cleared > 0 ORDER BY cleared DESC, n LIMIT ?", (_MOST_CLEARED,)
    )
    kept = [*cases.closed(_MOST_CLOSED), *cases.in_state(*_OPEN)[-_MOST_CASES:]]
    record = _Record(
        form=5,
        now=now - now % _ROUND_SECONDS,
        meta={name: store.number(name) for name in _META},
        cleared=[(_hardware(store, number), until) for number, until in cleared],
        cases=[(_hardware(store, case.device), replace(case, **_OWN)) for case in kept],
    )
    while len(text := _packed(record)) > _MOST_CHARACTERS and record.cases:
        del record.cases[: len(record.cases) // 8 + 1]  # the ended ones and the oldest first
    return text


def passed_on(text: str, now: float) -> str:
    """Returns the record that a dry run passes on: the one it got, with all events until now ignored."""
    record = _read(text) if text else _Record(form=5, now=now, meta={}, cleared=[], cases=[])
    _move_along(record, now)
    record.now = record.meta["ignore_before"] = now - now % _ROUND_SECONDS
    return _packed(record)


def adopt(store: Store, text: str, now: float) -> None:
    """Makes what was left our own; within a transaction."""
    if not text:
        return
    record = _read(text)
    _move_along(record, now)
    for name in _META:
        store.set_meta(name, record.meta.get(name, 0.0))
    known = KnownDevices(store)
    for device, until in record.cleared:
        known.clear(_number(known, device, now), until)
    cases, open_there = Cases(store), set()
    for device, each in record.cases:
        number = _number(known, device, now)
        _take_over(cases, number, {name: value for name, value in asdict(each).items() if name not in _OWN}, now)
        if each.closed is None:
            open_there.add(number)
    for case in cases.in_state(*_OPEN):
        if case.device not in open_there:
            _end(store, cases, case, now)


def _packed(record: _Record) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(record))).decode()


def _read(text: str) -> _Record:
    try:
        record = msgspec.json.decode(zlib.decompress(base64.b64decode(text, validate=True)))
        if isinstance(record, dict) and record.get("form") == _BEFORE:
            cases = [(device, {**case, **of_sentences(case)}) for device, case in record["cases"]]
            record |= {"form": 5, "cases": cases}
        return msgspec.convert(record, _Record)
    except (LookupError, TypeError, ValueError, zlib.error, RecursionError) as error:
        raise StateError(f"what the handler before has left can't be read: {error}.") from error


def _move_along(record: _Record, now: float) -> None:
    """Moves times stored by another clock, or before a time without a handler, which does not count."""
    jump = now - record.now
    if abs(jump) <= _STEADY_SECONDS:
        return
    record.cases = [
        (device, replace(case, opened=min(case.opened + jump, now), last_fault=min(case.last_fault + jump, now)))
        for device, case in record.cases
    ]
    if opened := record.meta.get("breaker_opened"):
        record.meta["breaker_opened"] = min(opened + jump, now)


def _take_over(cases: Cases, device: int, values: dict[str, Any], now: float) -> None:
    """Makes a case that was left ours."""
    same = cases.about(values["event_id"])  # of a device that was replaced since, too
    case = (cases.open_case(device) or same) if values["closed"] is None else same
    if case is None:
        case = cases.insert(device=device, **values)
    else:
        if case.event_id != values["event_id"]:
            cases.untell(case)
        cases.change(case.n, device=device, **values)
    if values["closed"] is not None:
        cases.untell(case)
    elif values["state"] not in ("isolating", "others"):
        cases.tell(cases.get(case.n), "isolation", f"{values['reason']}, so it is isolated.", now)


def _end(store: Store, cases: Cases, case: Case, now: float) -> None:
    """Ends a case that the predecessor ended or refused; one unknown to it stays, and the scheduler is asked."""
    cleared = store.db.execute("SELECT cleared FROM device WHERE n = ?", (case.device,)).fetchone()[0]
    happened = Event.from_json(case.event).time
    if happened <= max(cleared, store.number("ignore_before")) or store.number("breaker_opened"):
        cases.untell(case)
        why = case.why_released or "the handler that acted before has not taken it out, or has given it back"
        cases.move(case.n, "drop", now, ending=case.ending or "predecessor", why_released=why, error="")


def _hardware(store: Store, number: int) -> _Hardware:
    """Returns the fields that identify a device in any store."""
    found: _Hardware = store.db.execute("SELECT host, name, rank, serial FROM device WHERE n = ?", (number,)).fetchone()
    return found


def _number(known: KnownDevices, device: _Hardware, now: float) -> int:
    return known.number(*device[:3], now, device[3])

"""The filters of `/events`: which of the recent events a client wants to see."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timezone
from typing import NamedTuple

from asd.event import KINDS, LEVEL_NAMES, Event
from asd.event_cursor import CURSOR
from asd.records import read_time

__all__ = ["FILTERS", "After", "Page", "QueryError", "after", "newest_first", "to_json"]

_DEFAULT_LIMIT, _LARGEST_LIMIT = 100, 1000
_ZONE = re.compile(r"(T[0-9:.]+) (\d\d:?\d\d)$", re.ASCII)  # a "+" that was not encoded has become a space
FILTERS = ("since", "until", "device", "rank", "level", "kind", "run", "limit")
"""`since` and `until` are inclusive. A filter of the others that is given several times takes any of its values."""


_MOST_CURSORS = 20
_LONGEST_WAIT = 60.0  # seconds
_READING = ("after", "limit", "wait")


class QueryError(ValueError):
    """A filter that is not valid; the sentence says what is."""


class Page(NamedTuple):
    """Some events of a journal.

    Attributes:
        events: CloudEvents in JSON, in the order in which they were taken in.
        cursor: Where to go on; empty while there is no journal.
        missed: How many were dropped, for there were too many, before they were asked for.
    """

    events: list[str]
    cursor: str
    missed: int = 0


class After(NamedTuple):
    """What a reader asks for who wants every event once.

    Attributes:
        cursors: How far it has read, of one journal or of several; none for all there is.
        limit: So many events at most.
        wait_seconds: How long to wait for one where there is none.
    """

    cursors: tuple[str, ...]
    limit: int
    wait_seconds: float


def after(query: Mapping[str, list[str]]) -> After:
    """Reads a query with `after`, which goes with `limit` and `wait` alone.

    Raises:
        QueryError: Another filter, or a value that is not valid.
    """
    for name in query:
        if name not in _READING:
            raise QueryError(f"the filter {name!r} does not go with 'after'; valid are {', '.join(_READING)}.")
    cursors = [text for text in query["after"] if text]
    for text in cursors:
        if CURSOR.fullmatch(text) is None or len(cursors) > _MOST_CURSORS:
            raise QueryError(
                f"the filter 'after' is {text[:80]!r}, one of {len(cursors)}; valid are at most {_MOST_CURSORS} "
                "cursors from the header X-ASD-Cursor, or an empty text for all events."
            )
    wait = _only("wait", query.get("wait", ["0"]))
    if not re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,3})?", wait, re.ASCII) or float(wait) > _LONGEST_WAIT:
        raise QueryError(f"the filter 'wait' is {wait[:80]!r}; valid is a number of seconds from 0 to 60.")
    return After(tuple(cursors), _limit(query), float(wait))


def newest_first(events: Sequence[Event], query: Mapping[str, list[str]]) -> list[Event]:
    """The events that pass every filter of `query`, the newest first.

    Args:
        events: In any order; of two with the same time the later one counts as newer.
        query: The values of each filter, see `FILTERS`.

    Raises:
        QueryError: An unknown filter or a value that is not valid.
    """
    for name in query:
        if name not in FILTERS:
            raise QueryError(f"the filter {name!r} is not known; valid are {', '.join(FILTERS)}.")
    limit = _limit(query)
    tests = [_TESTS[name](values) for name, values in query.items() if name in _TESTS]
    found = [event for event in reversed(events) if all(test(event) for test in tests)]
    return sorted(found, key=_time, reverse=True)[:limit]


def to_json(events: Sequence[Event]) -> bytes:
    """A JSON array of CloudEvents, one a line."""
    text = "[" + ",\n".join(event.to_json() for event in events) + "]\n"
    return text.encode(errors="backslashreplace")  # which is how JSON spells half a surrogate pair, too


_Test = Callable[[Event], bool]


def _time(event: Event) -> float:
    return event.time


def _only(name: str, values: Sequence[str]) -> str:
    if len(values) > 1:
        raise QueryError(f"the filter {name!r} is given {len(values)} times; valid is once.")
    return values[0]


def _limit(query: Mapping[str, list[str]]) -> int:
    text = _only("limit", query.get("limit", [str(_DEFAULT_LIMIT)]))
    if not re.fullmatch("[0-9]{1,4}", text, re.ASCII) or not 1 <= int(text) <= _LARGEST_LIMIT:
        raise QueryError(f"the filter 'limit' is {text[:80]!r}; valid is a whole number from 1 to {_LARGEST_LIMIT}.")
    return int(text)


def _moment(name: str, values: Sequence[str]) -> float:
    text = _ZONE.sub(r"\1+\2", _only(name, values))
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text, re.ASCII):
        return float(text)
    try:
        moment = read_time(text)
        return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()
    except (ValueError, OverflowError) as error:
        raise QueryError(
            f"the filter {name!r} is {text[:80]!r}; valid is a time such as 2026-01-31T12:00:00Z, in UTC unless it "
            "names a zone, or seconds since 1970."
        ) from error


def _since(values: Sequence[str]) -> _Test:
    moment = _moment("since", values)
    return lambda event: event.time >= moment


def _until(values: Sequence[str]) -> _Test:
    moment = _moment("until", values)
    return lambda event: event.time <= moment


def _device(values: Sequence[str]) -> _Test:
    return lambda event: event.device in values


def _run(values: Sequence[str]) -> _Test:
    return lambda event: event.run in values


def _rank(values: Sequence[str]) -> _Test:
    for text in values:
        if not re.fullmatch("-1|[0-9]{1,9}", text, re.ASCII):
            raise QueryError(f"the filter 'rank' is {text[:80]!r}; valid is a whole number from 0 on, or -1 for none.")
    ranks = {int(text) for text in values}
    return lambda event: event.rank in ranks


def _word(name: str, values: Sequence[str], valid: Sequence[str]) -> None:
    for text in values:
        if text not in valid:
            raise QueryError(f"the filter {name!r} is {text[:80]!r}; valid are {', '.join(valid)}.")


def _level(values: Sequence[str]) -> _Test:
    _word("level", values, list(LEVEL_NAMES.values()))
    return lambda event: LEVEL_NAMES[event.level] in values


def _kind(values: Sequence[str]) -> _Test:
    _word("kind", values, KINDS)
    return lambda event: event.kind in values


_TESTS: Mapping[str, Callable[[Sequence[str]], _Test]] = {
    "since": _since,
    "until": _until,
    "device": _device,
    "rank": _rank,
    "level": _level,
    "kind": _kind,
    "run": _run,
}

"""The filters of `/events`: which of the recent events a client wants to see."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from asd.event import KINDS, LEVEL_NAMES, Event
from asd.handler.inputs.cursor import CURSOR

__all__ = ["FILTERS", "After", "Page", "Query", "QueryError", "after", "newest_first", "to_json"]

Query = Mapping[str, list[str]]
"""The values of each parameter of a request."""

_DEFAULT_LIMIT, _LARGEST_LIMIT = 100, 1000
FILTERS = ("device", "rank", "level", "kind", "run", "limit")
"""A filter that is given several times takes any of its values."""


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


def after(query: Query) -> After:
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


def newest_first(events: Sequence[Event], query: Query) -> list[Event]:
    """The events that pass every filter of `query`, the newest first.

    Args:
        events: In any order; of two with the same time the later one counts as newer.
        query: The values of each of `FILTERS`.

    Raises:
        QueryError: An unknown filter or a value that is not valid.
    """
    for name, values in query.items():
        for text in values:
            _check(name, text)
    limit = _limit(query)
    chosen = [(_VALUES[name], values) for name, values in query.items() if name in _VALUES]
    found = [event for event in reversed(events) if all(value(event) in values for value, values in chosen)]
    return sorted(found, key=lambda event: event.time, reverse=True)[:limit]


def _check(name: str, text: str) -> None:
    if name not in FILTERS:
        raise QueryError(f"the filter {name!r} is not known; valid are {', '.join(FILTERS)}.")
    if name in _FEW and text not in _FEW[name]:
        raise QueryError(f"the filter {name!r} is {text[:80]!r}; valid are {', '.join(_FEW[name])}.")
    if name == "rank" and not re.fullmatch("-1|0|[1-9][0-9]{0,8}", text, re.ASCII):
        raise QueryError(f"the filter 'rank' is {text[:80]!r}; valid is a whole number from 0 on, or -1 for none.")


def to_json(events: Sequence[Event]) -> bytes:
    """A JSON array of CloudEvents, one a line."""
    text = "[" + ",\n".join(event.to_json() for event in events) + "]\n"
    return text.encode(errors="backslashreplace")  # which is how JSON spells half a surrogate pair, too


_FEW = {"level": tuple(LEVEL_NAMES.values()), "kind": KINDS}
_VALUES: Mapping[str, Callable[[Event], str]] = {
    "device": lambda event: event.device,
    "rank": lambda event: str(event.rank),
    "level": lambda event: LEVEL_NAMES[event.level],
    "kind": lambda event: event.kind,
    "run": lambda event: event.run,
}


def _only(name: str, values: Sequence[str]) -> str:
    if len(values) > 1:
        raise QueryError(f"the filter {name!r} is given {len(values)} times; valid is once.")
    return values[0]


def _limit(query: Query) -> int:
    text = _only("limit", query.get("limit", [str(_DEFAULT_LIMIT)]))
    if not re.fullmatch("[0-9]{1,4}", text, re.ASCII) or not 1 <= int(text) <= _LARGEST_LIMIT:
        raise QueryError(f"the filter 'limit' is {text[:80]!r}; valid is a whole number from 1 to {_LARGEST_LIMIT}.")
    return int(text)

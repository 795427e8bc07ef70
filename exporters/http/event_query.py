"""Query of a request for `/events`."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from asd.event import Event
from asd.handler.inputs.cursor import CURSOR

Query = Mapping[str, list[str]]  # the values of each parameter of a request

_LARGEST_LIMIT = 1000
_MOST_CURSORS = 20
_LONGEST_WAIT = 60.0  # seconds
_READING = ("after", "limit", "wait")


class QueryError(ValueError):
    """Raised for a parameter that is not valid; the message has what is."""


class Page(NamedTuple):
    """Events of a journal."""

    events: list[str]  # CloudEvents in JSON, in the order of arrival
    cursor: str  # position of the next page; empty without a journal
    missed: int = 0  # number of events that were dropped, since there were too many, before this request


class After(NamedTuple):
    """Query of a reader that wants every event once."""

    cursors: tuple[str, ...]  # position in one journal or several; empty for all events
    limit: int  # most events to return
    wait_seconds: float  # seconds to wait for an event if there is none


def after(query: Query) -> After:
    """Parses a query with `after`, which allows `limit` and `wait` only."""
    for name in query:
        if name not in _READING:
            raise QueryError(f"the parameter {name!r} cannot be combined with 'after'; only {', '.join(_READING)} can.")
    cursors = [text for text in query["after"] if text]
    for text in cursors:
        if CURSOR.fullmatch(text) is None or len(cursors) > _MOST_CURSORS:
            raise QueryError(
                f"the parameter 'after' is {text[:80]!r}, one of {len(cursors)}; pass at most {_MOST_CURSORS} "
                "cursors from the header X-ASD-Cursor, or an empty text for all events."
            )
    wait = _number(query, "wait", "0", r"[0-9]{1,2}(\.[0-9]{1,3})?", (0, _LONGEST_WAIT), "a number of seconds")
    return After(tuple(cursors), _limit(query), wait)


def newest_first(events: Sequence[Event], query: Query) -> list[Event]:
    """Returns the newest events, as many as `limit` in `query`.

    Args:
        events: Events in any order; if two have the same time the later one counts as newer.
        query: The values of each parameter.
    """
    for name in query:
        if name != "limit":
            raise QueryError(f"the parameter {name!r} is unknown; pass limit.")
    return sorted(reversed(events), key=lambda event: event.time, reverse=True)[: _limit(query)]


def to_json(events: Sequence[Event]) -> bytes:
    """Returns a JSON array of CloudEvents, one a line."""
    text = "[" + ",\n".join(event.to_json() for event in events) + "]\n"
    return text.encode(errors="backslashreplace")  # which is how JSON spells half a surrogate pair, too


def _limit(query: Query) -> int:
    return int(_number(query, "limit", "100", "[0-9]{1,4}", (1, _LARGEST_LIMIT), "a whole number"))


def _number(query: Query, name: str, usual: str, form: str, bounds: tuple[float, float], what: str) -> float:
    values = query.get(name, [usual])
    if len(values) > 1:
        raise QueryError(f"the parameter {name!r} is given {len(values)} times; pass it once.")
    if not re.fullmatch(form, values[0], re.ASCII) or not bounds[0] <= float(values[0]) <= bounds[1]:
        valid = f"{what} from {bounds[0]:g} to {bounds[1]:g}"
        raise QueryError(f"the parameter {name!r} is {values[0][:80]!r}; it must be {valid}.")
    return float(values[0])

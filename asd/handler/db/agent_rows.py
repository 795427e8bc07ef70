"""What the store knows of the agents that are pulled from: how far each was read, and who is not heard."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from asd.handler.db.store import Store

__all__ = ["CURSORS", "SilentAgent", "forget_silent", "note_silent", "read_cursors", "silent_agents"]

CURSORS, _SILENT = "cursors of ", "silent "
"""Before the name of a node: its cursors are kept so, as a JSON list of texts."""


class SilentAgent(NamedTuple):
    """An agent that is not heard.

    Attributes:
        node: Its node, or where the agent is when that is not known.
        since: Since when, in seconds since the epoch.
        reason: Why, without a full stop.
    """

    node: str
    since: float
    reason: str


def read_cursors(store: Store) -> dict[str, list[str]]:
    """The cursors of every node."""
    return _rows(store, CURSORS)


def silent_agents(store: Store) -> dict[str, SilentAgent]:
    """The agents that are not heard, by where they are."""
    return {place: SilentAgent(*found) for place, found in _rows(store, _SILENT).items()}


def note_silent(store: Store, place: str, agent: SilentAgent) -> None:
    """Keeps that an agent is not heard; within a transaction."""
    store.set_meta(_SILENT + place, json.dumps(agent))


def forget_silent(store: Store, place: str) -> None:
    """Keeps that it is, or is not asked any more; within a transaction."""
    store.db.execute("DELETE FROM meta WHERE name = ?", (_SILENT + place,))


def _rows(store: Store, head: str) -> dict[str, list[Any]]:
    rows = store.db.execute("SELECT name, value FROM meta WHERE substr(name, 1, ?) = ?", (len(head), head))
    return {name.removeprefix(head): json.loads(value) for name, value in rows}

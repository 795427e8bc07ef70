"""What the store knows of the agents that are pulled from: how far each was read, and who is not heard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from asd.handler.db.store import Store

__all__ = ["CURSORS", "SilentAgent", "note_silent", "read_cursors", "silent_agents"]

CURSORS, _SILENT = "cursors of ", "silent"
"""Before the name of a node: its cursors are kept so, as a JSON list of texts. And the agents that are not heard."""


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
    rows = store.db.execute("SELECT name, value FROM meta WHERE substr(name, 1, ?) = ?", (len(CURSORS), CURSORS))
    return {name.removeprefix(CURSORS): json.loads(value) for name, value in rows}


def silent_agents(store: Store) -> dict[str, SilentAgent]:
    """The agents that are not heard, by where they are."""
    return {place: SilentAgent(*found) for place, found in json.loads(store.meta(_SILENT, "{}")).items()}


def note_silent(store: Store, agents: Mapping[str, SilentAgent]) -> None:
    """Keeps which agents are not heard, by where they are; within a transaction."""
    store.set_meta(_SILENT, json.dumps(agents))

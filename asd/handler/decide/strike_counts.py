"""The strikes of many devices for programs that show them and isolate nobody: a strike book in memory.

It takes the same memory after a million events as after some thousands. What it holds can be kept in a file of its
owner and taken over from there.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from typing import Any

from asd.errors import StateError
from asd.event import Event
from asd.handler.db.store import Store
from asd.handler.decide.suspicion import StrikeCount, Suspicion
from asd.handler.identity import whole_event
from asd.handler.policy import Policy

__all__ = ["StrikeCounts"]

_TABLES = ("device", "strike", "passed", "software", "sighting")
_MOST_DEVICES = 1024
_MOST_FACTS = 5000  # strikes, sightings, and steps known to be software
_PRUNE_EVENTS = 1000


class StrikeCounts:
    """Counts strikes; used by one thread at a time.

    Args:
        policy: What a strike is, and how long it counts.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._store = Store(None)
        self._book = Suspicion(self._store, policy)
        self._unpruned = 0

    def add(self, event: Event, now: float) -> bool:
        """Takes in any event; returns whether there is a strike more.

        Args:
            event: Each may come any number of times.
            now: When it was read, in seconds since the epoch.
        """
        if not math.isfinite(event.time):
            return False
        try:
            new = self._count(whole_event(event), now)
        except OverflowError:  # its numbers are out of every range
            return False
        self._unpruned += 1
        if self._unpruned >= _PRUNE_EVENTS:
            self._prune(now)
        return new

    def standings(self, now: float) -> dict[tuple[str, str, int], StrikeCount]:
        """How every device with strikes stands at `now`, by `asd.rules.step.strikes.device_key`."""
        found = self._book.standings(now)
        keys = self._store.db.execute("SELECT n, host, name, shared_rank FROM device")
        return {(host, name, rank): found[number] for number, host, name, rank in keys if number in found}

    def state(self) -> dict[str, Any]:
        """Everything that was counted, JSON-able."""
        return {name: [list(map(_plain, row)) for row in self._rows(name)] for name in _TABLES}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            StateError: It is no such state. Nothing was changed then.
        """
        try:
            with self._store.transaction() as db:
                for name in _TABLES:
                    db.execute(f"DELETE FROM {name}")
                    width = len(db.execute(f"SELECT * FROM {name} LIMIT 0").description)
                    rows = [tuple(map(_stored, row)) for row in state[name]]
                    db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * width)})", rows)
        except (KeyError, TypeError, ValueError, OverflowError, StateError) as error:
            raise StateError(f"saved strikes can't be used: {error!r}.") from error
        self._book.forget_cache()

    def _count(self, event: Event, now: float) -> bool:
        try:
            with self._store.transaction():
                counted = self._book.count(event, now)
        except BaseException:
            self._book.forget_cache()
            raise
        return counted.new and not (counted.software or event.verdict == "software")

    def _rows(self, table: str) -> sqlite3.Cursor:
        return self._store.db.execute(f"SELECT * FROM {table}")

    def _prune(self, now: float) -> None:
        """Forgets what nothing asks for any more, and the oldest of too much."""
        self._unpruned = 0
        with self._store.transaction() as db:
            self._store.prune(now - self._policy.memory_seconds, now - self._policy.strike_memory_seconds)
            for table in ("strike", "software", "sighting"):
                order = "received" if table == "software" else "n"
                db.execute(
                    f"DELETE FROM {table} WHERE {order} <= "
                    f"(SELECT {order} FROM {table} ORDER BY {order} DESC LIMIT 1 OFFSET {_MOST_FACTS})"
                )
            kept = f"SELECT n FROM device ORDER BY last DESC LIMIT {_MOST_DEVICES}"
            db.execute(f"DELETE FROM device WHERE n NOT IN ({kept})")
            for table in ("strike", "passed"):
                db.execute(f"DELETE FROM {table} WHERE device NOT IN (SELECT n FROM device)")
        self._book.forget_cache()


def _plain(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _stored(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value

"""Which events are written already, so that lines that are read again double nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from asd.ingest.alarms import Alarm
from asd.records import read_time

__all__ = ["Known"]

_IDS = 100_000
_FACTS = 1000


class Known:
    """Remembers the last events that were written, in bounded memory.

    How far the logs were read is saved after the events are written. A process that is killed in between reads lines
    again; their events have the ids of those that stand in the event log, from which `load` takes them.
    """

    def __init__(self) -> None:
        self._ids: dict[bytes, None] = {}
        self._facts: dict[tuple[str, int, str, str], float] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def load(self, paths: Iterable[Path]) -> None:
        """Takes the events of an event log, the older files first; what is no event is passed over.

        Raises:
            OSError: A file is there but can't be read.
        """
        for path in paths:
            with path.open("rb") as file:
                for line in file:
                    self._load(line)

    def has(self, alarm: Alarm) -> bool:
        """Whether it was written, or the same fact was, told by another line."""
        event = alarm.event
        if bytes.fromhex(event.id) in self._ids:
            return True
        last = self._facts.get((event.run, event.rank, event.rule, event.reason)) if alarm.repeats_within else None
        return last is not None and abs(event.time - last) <= alarm.repeats_within

    def add(self, alarm: Alarm) -> None:
        """Remembers that it was written."""
        event = alarm.event
        self._add_id(event.id)
        if alarm.repeats_within:
            self._add_fact((event.run, event.rank, event.rule, event.reason), event.time)

    def _load(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            self._add_id(event["id"])
            data = event["data"]
            if data["reason"].startswith("checksum"):
                fact = (str(data["run"]), int(data["rank"]), str(data["rule"]), str(data["reason"]))
                self._add_fact(fact, read_time(event["time"]).timestamp())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return  # torn, or not ours

    def _add_id(self, text: str) -> None:
        self._ids[bytes.fromhex(text)] = None
        if len(self._ids) > _IDS:
            del self._ids[next(iter(self._ids))]

    def _add_fact(self, fact: tuple[str, int, str, str], when: float) -> None:
        self._facts.pop(fact, None)
        self._facts[fact] = when
        if len(self._facts) > _FACTS:
            del self._facts[next(iter(self._facts))]

"""Fleet: how long each device was watched in trainings, by its hardware, and which devices were found faulty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import astuple, replace

from asd.event import Event
from asd.handler.db.store import Store
from asd.origin import UNKNOWN, Hardware, Short
from asd.records import Name

_MOST_DEVICES = 32  # of one host at the same time
_MOST_OF_HOST = 256  # rows of one host: 16 devices with as many upgrades
_NO_FAULT = ("acquitted", "person")
"""Endings of cases that were no fault of a device: software or data, and what a person released."""


class Used(msgspec.Struct, array_like=True, frozen=True):
    """Time in which a device was watched in trainings with one hardware, in the order of the table's columns."""

    host: Name
    device: Name
    serial: Name
    model: Short
    firmware: Short
    driver: Short
    cann: Short
    board: Short
    days: float = 0.0

    @property
    def hardware(self) -> Hardware:
        """Hardware of the device then."""
        return Hardware(self.model, self.firmware, self.driver, self.cann, self.board)


class Fault(NamedTuple):
    """Device that was found faulty, by a case that nobody revoked."""

    host: str
    device: str  # its serial, else its name
    hardware: Hardware
    time: float  # when the case was opened, in seconds since the epoch


_COLUMNS = ", ".join(Used.__struct_fields__)


class Fleet:
    """Devices of all nodes, as their agents report them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, host: str, used: Sequence[Used], days: float, now: float) -> None:
        """Adds days to devices that the agent of `host` reports; of other nodes it reports nothing.

        Used within a transaction.
        """
        db = self._store.db
        if not self._store.meta("fleet_since"):
            self._store.set_meta("fleet_since", now)
        marks = ", ".join("?" * len(Used.__struct_fields__))
        rows = {replace(each, days=days) for each in used[:_MOST_DEVICES] if each.host == host}
        query = f"INSERT INTO fleet ({_COLUMNS}) VALUES ({marks}) ON CONFLICT DO UPDATE SET days = days + excluded.days"
        db.executemany(query, map(astuple, rows))
        newest = "SELECT n FROM fleet WHERE host = ? ORDER BY n DESC LIMIT ?"
        db.execute(f"DELETE FROM fleet WHERE host = ? AND n NOT IN ({newest})", (host, host, _MOST_OF_HOST))

    def used(self) -> list[Used]:
        """Returns the days of every device, by its hardware; the oldest hardware of a device first."""
        return [Used(*row) for row in self._store.db.execute(f"SELECT {_COLUMNS} FROM fleet ORDER BY n")]

    def faults(self) -> list[Fault]:
        """Returns the faults since days are counted, each device once, the oldest first."""
        now = {(each.host, each.device, each.serial): each.hardware for each in self.used()}
        rows = self._store.db.execute(
            f"SELECT opened, event FROM cases WHERE opened >= ? AND ending NOT IN {_NO_FAULT} ORDER BY opened",
            (self._store.number("fleet_since", float("inf")),),
        )
        found: dict[tuple[str, str, Hardware], Fault] = {}
        for opened, text in rows:
            event = Event.from_json(text)
            place, name = (event.host, event.device, event.serial), event.serial or event.device
            hardware = event.hardware if event.hardware != UNKNOWN else now.get(place, UNKNOWN)
            found.setdefault((event.host, name, hardware), Fault(event.host, name, hardware, opened))
        return list(found.values())

"""Fleet: how long each device was watched in trainings, by its hardware, and which devices were found faulty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields

import msgspec
from msgspec import structs

from asd.event import Event
from asd.handler.db.store import Store
from asd.origin import UNKNOWN, Hardware, Short
from asd.records import Name

_MOST_DEVICES = 32  # of one host at the same time
_MOST_OF_HOST = 256  # rows of one host: 16 devices with as many upgrades


class Used(msgspec.Struct, array_like=True, frozen=True):
    """Time in which a device was watched in trainings with one hardware, as a row of the table `fleet`."""

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
        return Hardware(**{each.name: getattr(self, each.name) for each in fields(Hardware)})


_COLUMNS = ", ".join(Used.__struct_fields__)
_MARKS = ", ".join("?" * len(Used.__struct_fields__))


class Fleet:
    """Devices of all nodes, as their agents report them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, host: str, used: Sequence[Used], days: float, now: float) -> None:
        """Adds days to devices that the agent of `host` reports, which reports those of its own node only.

        Used within a transaction.
        """
        db = self._store.db
        if not self._store.meta("fleet_since"):
            self._store.set_meta("fleet_since", now)
        rows = {structs.replace(each, days=days) for each in used[:_MOST_DEVICES] if each.host == host}
        query = (
            f"INSERT INTO fleet ({_COLUMNS}) VALUES ({_MARKS}) ON CONFLICT DO UPDATE SET days = days + excluded.days"
        )
        db.executemany(query, map(structs.astuple, rows))
        newest = "SELECT n FROM fleet WHERE host = ? ORDER BY n DESC LIMIT ?"
        db.execute(f"DELETE FROM fleet WHERE host = ? AND n NOT IN ({newest})", (host, host, _MOST_OF_HOST))

    def used(self) -> list[Used]:
        """Returns the days of every device, by its hardware; the oldest hardware of a device first."""
        return [Used(*row) for row in self._store.db.execute(f"SELECT {_COLUMNS} FROM fleet ORDER BY n")]

    def faults(self) -> list[tuple[float, Used]]:
        """Returns the faulty devices since days are counted, each once, with the time, the oldest first.

        Software and data, and what a person released, are no fault.
        """
        now = {(each.host, each.device, each.serial): each.hardware for each in self.used()}
        query = "SELECT opened, event FROM cases WHERE opened >= ? AND ending NOT IN ('acquitted', 'person') ORDER BY n"
        rows = self._store.db.execute(query, (self._store.number("fleet_since", float("inf")),))
        found: dict[Used, float] = {}
        for opened, event in ((opened, Event.from_json(text)) for opened, text in rows):
            place = event.host, event.device, event.serial
            hardware = event.hardware if event.hardware != UNKNOWN else now.get(place, UNKNOWN)
            found.setdefault(Used(*place, *astuple(hardware)), opened)
        return [(opened, device) for device, opened in found.items()]

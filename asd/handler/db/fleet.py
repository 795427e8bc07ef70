"""Fleet: how long each device was watched in trainings, by its hardware, and which devices were found faulty."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from asd.event import Event
from asd.handler.db.store import Store
from asd.origin import UNKNOWN, Hardware
from asd.records import Name

_MOST_DEVICES = 32  # of one host at the same time
_MOST_OF_HOST = 256  # rows of one host: 16 devices with as many upgrades


class Used(NamedTuple):
    """Time in which a device was watched in trainings with one hardware."""

    host: Name
    device: Name
    serial: Name
    hardware: Hardware
    days: float = 0.0


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
        own = {each[:4] for each in used[:_MOST_DEVICES] if each.host == host}
        more = "ON CONFLICT DO UPDATE SET days = days + excluded.days"
        query = f"INSERT INTO fleet (host, device, serial, hardware, days) VALUES (?, ?, ?, ?, ?) {more}"
        db.executemany(query, [(*place, msgspec.json.encode(parts).decode(), days) for *place, parts in own])
        newest = "SELECT n FROM fleet WHERE host = ? ORDER BY n DESC LIMIT ?"
        db.execute(f"DELETE FROM fleet WHERE host = ? AND n NOT IN ({newest})", (host, host, _MOST_OF_HOST))

    def used(self) -> list[Used]:
        """Returns the days of every device, by its hardware; the oldest hardware of a device first."""
        rows = self._store.db.execute("SELECT host, device, serial, hardware, days FROM fleet ORDER BY n")
        return [Used(a, b, c, msgspec.json.decode(text, type=Hardware), days) for a, b, c, text, days in rows]

    def faults(self) -> list[tuple[float, Used]]:
        """Returns the faulty devices since days are counted, each once, with the time, the oldest first.

        Software and data, and what a person released, are no fault.
        """
        now = {each[:3]: each.hardware for each in self.used()}
        query = "SELECT opened, event FROM cases WHERE opened >= ? AND ending NOT IN ('acquitted', 'person') ORDER BY n"
        rows = self._store.db.execute(query, (self._store.number("fleet_since", float("inf")),))
        found: dict[Used, float] = {}
        for opened, event in ((opened, Event.from_json(text)) for opened, text in rows):
            place = event.host, event.device, event.serial
            hardware = event.hardware if event.hardware != UNKNOWN else now.get(place, UNKNOWN)
            found.setdefault(Used(*place, hardware), opened)
        return [(opened, device) for device, opened in found.items()]

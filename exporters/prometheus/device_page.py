"""`/devices` of a fault handler: what `asd devices --json` prints, with filters."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping

from asd.exporters.http.event_query import QueryError
from asd.handler import Store
from asd.handler.device_record import DeviceRecord, device_records, policy_of, records_json

__all__ = ["FILTERS", "DevicePage"]

FILTERS = ("node", "device", "rank", "state", "health")
"""A filter that is given several times takes any of its values."""

_STATES = ("in use", "isolating", "isolated", "releasing", "dry")
_HEALTH = ("OK", "Warning")


class DevicePage:
    """Reads the database of the handler over a connection of its own, so that nobody who asks delays the handler.

    Args:
        store: The handler's.
        clock: Seconds since the epoch.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._handlers = store
        self._clock = clock
        self._reader: Store | None = None
        self._lock = threading.Lock()

    def __call__(self, query: Mapping[str, list[str]]) -> bytes:
        """The devices that pass every filter of `query`, in JSON.

        Raises:
            QueryError: An unknown filter or a value that is not valid.
            StateError: The database can't be read.
        """
        _check(query)
        with self._lock:
            records = self._records()
        found = [each for each in records if all(_value(each, name) in query[name] for name in query)]
        return f"{records_json(found)}\n".encode(errors="backslashreplace")

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _records(self) -> list[DeviceRecord]:
        if self._reader is None:
            self._reader = self._handlers.reader()
        with self._reader.snapshot():
            return device_records(self._reader, policy_of(self._reader), self._clock())


def _value(record: DeviceRecord, name: str) -> str:
    if name == "health":
        return record.health["Health Status"]
    return str({"node": record.host, "device": record.device, "rank": record.rank, "state": record.state}[name])


def _check(query: Mapping[str, list[str]]) -> None:
    for name, values in query.items():
        if name not in FILTERS:
            raise QueryError(f"the filter {name!r} is not known; valid are {', '.join(FILTERS)}.")
        valid = {"state": _STATES, "health": _HEALTH}.get(name)
        for text in values:
            if valid is not None and text not in valid:
                raise QueryError(f"the filter {name!r} is {text[:80]!r}; valid are {', '.join(valid)}.")
            if name == "rank" and not re.fullmatch("-1|[0-9]{1,9}", text, re.ASCII):
                raise QueryError(f"the filter 'rank' is {text[:80]!r}; valid is a whole number from 0 on, or -1.")

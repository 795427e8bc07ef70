"""`/devices` of a fault handler: what `asd devices --json` prints, with filters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from asd.exporters.http.event_query import Query, check
from asd.handler import Store
from asd.handler.device_record import DeviceRecord, device_records, policy_of, records_json

__all__ = ["DevicePage"]

_FILTERS: Mapping[str, Callable[[DeviceRecord], str]] = {
    "node": lambda record: record.host,
    "device": lambda record: record.device,
    "rank": lambda record: str(record.rank),
    "state": lambda record: record.state,
    "health": lambda record: record.health["Health Status"],
}
_VALID = {"state": ("in use", "isolating", "isolated", "releasing", "dry"), "health": ("OK", "Warning")}


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

    def __call__(self, query: Query) -> bytes:
        """The devices that pass every filter of `query`, in JSON; a filter that is given several times takes any value.

        Raises:
            QueryError: An unknown filter or a value that is not valid.
            StateError: The database can't be read.
        """
        check(query, tuple(_FILTERS), _VALID)
        with self._lock:
            records = self._records()
        found = [each for each in records if all(_FILTERS[name](each) in query[name] for name in query)]
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

"""`/devices` of a fault handler: what `asd devices --json` prints."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from asd.handler import Store
from asd.handler.device_record import DeviceRecord, device_records, policy_of, records_json

__all__ = ["DevicePage"]


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

    def __call__(self) -> bytes:
        """The devices in JSON.

        Raises:
            StateError: The database can't be read.
        """
        with self._lock:
            records = self._records()
        return f"{records_json(records)}\n".encode(errors="backslashreplace")

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

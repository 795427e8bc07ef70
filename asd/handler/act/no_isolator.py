"""The isolator `none`: there is no engine, so what was decided is only recorded."""

from __future__ import annotations

from asd.handler.db.store import Store
from asd.isolator import Device, IsolationOwner


class NoIsolator:
    """Takes nothing out; a device is ours when the store says that it is isolated.

    Args:
        store: The handler's.
    """

    name = "none"

    def __init__(self, store: Store) -> None:
        self._store = store

    def held(self, device: Device) -> IsolationOwner:
        """Whether its case is open and was carried out."""
        row = self._store.db.execute(
            "SELECT state FROM cases JOIN device ON device.n = cases.device "
            "WHERE host = ? AND name = ? AND closed IS NULL",
            device[:2],
        ).fetchone()
        return IsolationOwner.OURS if row is not None and row[0] in ("isolated", "releasing") else IsolationOwner.FREE

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Does nothing."""

    def release(self, device: Device) -> None:
        """Does nothing."""

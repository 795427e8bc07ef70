"""The event log of isolations and recoveries."""

from __future__ import annotations

from pathlib import Path

from asd.event import Event
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler.db.store import events_file
from asd.rundir.disk import sync

__all__ = ["IsolationLog"]


class IsolationLog:
    """Writes to `RUN_DIR/events-handler.jsonl`; an event is on the disk once it was taken.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: Path) -> None:
        self._log = EventLog(events_file(run_dir))

    def __call__(self, event: Event) -> None:
        """Writes one event.

        Raises:
            OSError: It can't be written.
        """
        self._log(event)
        sync(self._log.path)

    def has(self, event_id: str) -> bool:
        """Whether an event of this id is there."""
        folder, name = self._log.path.parent, self._log.path.name
        return any(event.id == event_id for path in folder.glob(f"{name}*") for event in read_events(path))

"""Common parts of commands that isolate: isolators by name, and the event log of isolations and recoveries."""

import json
from collections.abc import Sequence
from pathlib import Path

from asd.errors import ConfigError
from asd.event import Event
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler import NoIsolator, Store
from asd.handler.db.store import events_file
from asd.isolator import Isolator
from asd.rundir.disk import sync


class IsolationLog:
    """Event log `RUN_DIR/events-handler.jsonl`, with one writer; an event is on the disk when the call returns."""

    def __init__(self, run_dir: Path) -> None:
        self._log = EventLog(events_file(run_dir))
        self._ids: set[str] | None = None  # of its events; None where they are not known

    def __call__(self, event: Event) -> None:
        """Writes one event; raises OSError if it cannot be written."""
        ids, self._ids = self._ids, None
        self._log(event)
        sync(self._log.path)
        self._ids = None if ids is None else ids | {event.id}

    def has(self, event_id: str) -> bool:
        """Returns whether the log has an event of this id."""
        if self._ids is None:
            logs = self._log.path.parent.glob(f"{self._log.path.name}*")
            self._ids = {event.id for path in logs for event in read_events(path)}
        return event_id in self._ids


def open_isolator(name: str, options: Sequence[str], store: Store) -> Isolator:
    """Returns the isolator of a name; `none` records only.

    Args:
        name: Name in `asd.exporters.isolators.make_isolator`; `local` is the isolator of `asd run --ranks`.
        options: Its options, each `K=V`.
        store: Store of the handler.
    """
    settings: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError("--option", option, "it must be K=V with the name of an option of the isolator")
        settings[key] = value
    if name == "none":
        if settings:
            raise ConfigError("--option", options[0], "the isolator none has no options")
        return NoIsolator(store)
    if name == "local" and json.loads(store.meta("isolator", "[0]"))[0] == name:
        from asd.supervisor.own_handler import LocalIsolator

        return LocalIsolator(store)
    from asd.exporters.isolators import make_isolator

    return make_isolator(name, **settings)

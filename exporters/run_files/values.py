"""Records the feature values of every step in `ASD_RUN_DIR`, one file per rank, for `asd tune`."""

import time
from collections.abc import Sequence
from pathlib import Path

from asd.config import Config
from asd.event import Event
from asd.exporters.run_files.event_log import EventLog
from asd.judge.delivery import Sink
from asd.judge.monitor import Monitor
from asd.judge.status import Status
from asd.origin import Origin
from asd.rules.kinds import KINDS
from asd.rules.reading import Reading
from asd.rundir.names import value_file
from asd.rundir.recording import Chunk
from asd.verdict import Level

STEPS = 50
SECONDS = 30.0
_FILE_BYTES, _OLDER_FILES = 64 << 20, 3


class ValueRecorder:
    """Recorder of judged values, which appends some steps at a time.

    A line is written when it has 50 steps, when its first step is 30 seconds old, and when the training ends. A killed
    process loses up to that much. A file has at most 64 MiB; three older ones are kept.

    Args:
        config: The settings, which are recorded with the values.
        origin: Origin of the values.
    """

    def __init__(self, config: Config, origin: Origin) -> None:
        self._config, self._origin = config, origin
        self._log = EventLog(value_file(Path(config.run_dir), origin.rank), _FILE_BYTES, _OLDER_FILES)
        self._chunk = Chunk(config, origin, ())
        self._known: dict[str, str] = {}
        self._since = 0.0
        self._status: Status | None = None
        self._steps = self._refused = 0

    def __call__(self, event: Event) -> None:
        """Marks the last step when an event comes after it, as an event about the weights does."""
        if event.kind in ("anomaly", "follower") and self._chunk.steps[-1:] == [event.step]:
            self._chunk.leave_out(_reason(event))

    def after_step(self, monitor: Monitor, events: Sequence[Event]) -> None:
        """Adds the step, if it is new; after an OSError the values of this line are lost."""
        status = monitor.status
        if status is not self._status:  # another training of this process
            self._status, self._steps, self._refused = status, 0, 0
        if status.steps != self._steps:
            self._steps = status.steps
            self._add(monitor.step, monitor.readings, monitor.loss_scale)
            for event in events:
                self._chunk.leave_out(_reason(event))
            if status.refused != self._refused:
                self._refused = status.refused
                self._chunk.leave_out("refused")
        if not status.active:
            self._write()

    def _add(self, step: int, readings: Sequence[Reading], loss_scale: float) -> None:
        sizes = [reading for reading in readings if reading.kind in KINDS]
        new = {reading.checkpoint: reading.kind for reading in sizes if reading.checkpoint not in self._known}
        chunk, now = self._chunk, time.monotonic()
        # A full line waits for the next step, since an event may still mark its last step.
        if new or len(chunk.steps) >= STEPS or now - self._since >= SECONDS:
            self._known.update(new)
            self._write()
            self._since = now
        self._chunk.add(step, sizes, loss_scale)

    def _write(self) -> None:
        chunk = self._chunk
        self._chunk = Chunk(self._config, self._origin, list(self._known.items()))
        if chunk.steps:
            self._log.append(chunk.line())


def open_recording(config: Config, origin: Origin) -> Sink:
    """Returns a recorder, or without the option `record` a sink that does nothing; factory for `asd.sinks`."""
    return ValueRecorder(config, origin) if config.record else _ignore


def _reason(event: Event) -> str:
    return "second" if event.level is Level.WARNING else "first"


def _ignore(event: Event) -> None:
    """Does nothing."""

"""Evidence: one folder for each step with a first-level anomaly, written whole or not at all."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from asd.config import Config
from asd.event import Event
from asd.exporters.bundle.files import write
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rundir.disk import sync
from asd.rundir.names import evidence_folder

MOST_BUNDLES = 20  # most bundles of a rank and run; a permanent fault looks the same in each
_PART = ".part"


class _Place(NamedTuple):
    step: int
    folder: str  # empty when nothing will be kept


class Evidence:
    """Sink that writes the evidence of a step with first-level anomalies, see `asd.exporters.bundle.files`.

    A bundle is written under another name, synced and renamed, so no reader sees half of one. Leftovers of a killed
    process are removed when the next process of that rank begins.

    Args:
        config: Settings; `run_dir` is the folder of the evidence.
        origin: Origin of the evidence.
    """

    def __init__(self, config: Config, origin: Origin) -> None:
        self.config = config
        self.origin = origin
        self._place: _Place | None = None
        self._remove_leftovers()
        self._count = len(self._bundles())

    def place(self, step: int) -> str:
        """Returns the folder for the evidence of `step`; empty when there are too many already."""
        if self._place is None or self._place.step != step:
            self._place = _Place(step, "" if self._count >= MOST_BUNDLES else str(self._free_folder(step)))
        return self._place.folder

    def __call__(self, event: Event) -> None:
        """Does nothing: a bundle needs all of a step, see `after_step`."""

    def after_step(self, monitor: Monitor, events: Sequence[Event]) -> None:
        """Writes the bundle of a step whose place was requested; after an OSError no file is there, and it is lost."""
        place, self._place = self._place, None
        if place is None:
            return
        if not place.folder:
            monitor.status.evidence_dropped += 1
            return
        try:
            self._write(Path(place.folder), monitor, events)
        except Exception:
            monitor.status.evidence_dropped += 1
            raise

    def _write(self, folder: Path, monitor: Monitor, events: Sequence[Event]) -> None:
        part = folder.with_name(f".{folder.name}{_PART}")
        part.mkdir(parents=True)
        try:
            write(part, self.config, monitor, events)
            sync(part)
            part.rename(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        sync(folder.parent)
        self._count += 1

    def _free_folder(self, step: int) -> Path:
        """Returns the folder of `step`, with a number appended if a training made this step before and was resumed."""
        first = evidence_folder(Path(self.config.run_dir), self.origin.run, self.origin.rank, step)
        folder, number = first, 1
        while os.path.lexists(folder):
            number += 1
            folder = first.with_name(f"{first.name}-{number}")
        return folder

    def _bundles(self) -> list[Path]:
        of_run = evidence_folder(Path(self.config.run_dir), self.origin.run, self.origin.rank, 0).parent
        return _matching(of_run, f"rank{self.origin.rank}-step*")

    def _remove_leftovers(self) -> None:
        """Removes half bundles of this rank, of any run: their processes were killed."""
        for part in _matching(Path(self.config.run_dir) / "evidence", f"*/.rank{self.origin.rank}-step*{_PART}"):
            shutil.rmtree(part, ignore_errors=True)


def open_evidence(config: Config, origin: Origin) -> Evidence:
    """Returns the sink of evidence; factory for the entry-point group `asd.sinks`."""
    return Evidence(config, origin)


def _matching(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []

"""Saves the rule state of a training and manifests beside its checkpoint files, and restores the state."""

import contextlib
import weakref
from pathlib import Path
from typing import Any, NamedTuple

from mindspore import nn

from asd.config import Config
from asd.errors import StateError
from asd.judge.monitor import Monitor
from asd.operators.gate.step_record import Part
from asd.operators.monitor.resume import CheckpointWatch, state_path, state_to_resume
from asd.operators.private.mended import FILE
from asd.operators.sensors.optimizers import counter_of, updates_of
from asd.rundir.manifest import Health, write_manifest
from asd.rundir.statefile import save_state


class _Judged(NamedTuple):
    """Judge of the last steps of an optimizer in this process, as with a `StepMonitor` for each `Model.train`."""

    monitor: Monitor
    health: Health
    before: int  # updates that the optimizer had made when the judging began

    @property
    def updates(self) -> int:
        """Returns the updates that the optimizer had made when the judging ended."""
        return self.before + self.monitor.status.steps - self.monitor.status.refused

    def state(self) -> dict[str, Any]:
        """Returns the state of the rules, as in a file beside a checkpoint."""
        return {**self.monitor.state(), "tainted_from": self.health.tainted_from}


_judged: weakref.WeakKeyDictionary[nn.Cell, _Judged] = weakref.WeakKeyDictionary()


class RuleState(Part):
    """Rule state of one `StepMonitor`.

    Attributes:
        files: Watch for the checkpoint files that the training writes.
        label: Label of this monitor among those of the process.
    """

    def __init__(self, config: Config, health: Health, resume_from: str | Path | None) -> None:
        self._config, self._health, self._resume_from = config, health, resume_from
        self.files = CheckpointWatch(())
        self.label = ""

    def save(self, file: Path, optimizer: nn.Cell | None, step: int) -> Path:
        """Saves the state after `step` beside `file`; returns the path of the state.

        Raises:
            OSError: The file cannot be written. Earlier files are not lost.
        """
        path = state_path(file, self.monitor.origin.rank, self.label)
        updates, tainted_from = updates_of(optimizer), self._health.tainted_from
        save_state(path, {**self.monitor.state(), "step": step, "updates": updates, "tainted_from": tainted_from})
        return path

    def save_manifest(self, file: Path, step: int) -> None:
        """Writes the manifest of `file`: its hash, and whether the steps before it were clean.

        Raises:
            OSError: The checkpoint cannot be read or the manifest not be written.
        """
        run_dir, self._health.alone = Path(self._config.run_dir), self.ranks.size == 1
        write_manifest(file, step=step, origin=self.monitor.origin, health=self._health, run_dir=run_dir)

    def resume(self, optimizer: nn.Cell | None) -> bool:
        """Restores the state of the training that continues with `optimizer`, if it has made steps already.

        Returns:
            Whether a state was restored. A state that cannot be restored is a problem, and the rules start over.
        """
        updates = updates_of(optimizer)
        earlier = _judged.get(optimizer) if optimizer is not None and self._resume_from is None else None
        if optimizer is not None:
            _judged[optimizer] = _Judged(self.monitor, self._health, updates)
        folders = [*self.files.folders(), Path(self._config.run_dir)]
        try:
            if earlier is not None and earlier.updates == updates:
                return self._take_over(earlier.state())
            file = getattr(counter_of(optimizer), FILE, None)
            state = state_to_resume(self._resume_from, folders, self.monitor.origin.rank, updates, self.label, file)
            return self._take_over(state)
        except StateError as error:
            if earlier is None:
                self.monitor.problem(f"{error} The rules learn from the start.")
                return False
        # This process made the steps, under another `StepMonitor`: if its settings differed, the rules start over.
        with contextlib.suppress(StateError):
            return self._take_over(earlier.state())
        return False

    def follow_roll_back(self, updates: int) -> bool:
        """Restores the state of the step to which MindSpore rolled back; without one the rules keep their state.

        Returns:
            Whether a state was restored.
        """
        with contextlib.suppress(StateError):
            state = state_to_resume(None, self.files.folders(), self.monitor.origin.rank, updates, self.label, None)
            return self._take_over(state)
        return False

    def _take_over(self, state: dict[str, Any] | None) -> bool:
        if state is None:
            return False
        self.monitor.restore(state, [site.name for site in self.gate.sites])
        self._health.tainted_from = int(state.get("tainted_from", 0))
        return True

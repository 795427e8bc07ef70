"""Saves the rule state of a training and manifests beside its checkpoint files, and restores the state."""

import contextlib
import weakref
from pathlib import Path
from typing import Any

from mindspore import nn

from asd.config import Config
from asd.errors import StateError
from asd.judge.monitor import Monitor
from asd.operators.gate.step_record import Part
from asd.operators.monitor.resume import CheckpointWatch, state_path, state_to_resume
from asd.operators.private.mended import FILE
from asd.operators.sensors.optimizers import count_of, counter_of, updates_of
from asd.rundir.manifest import Health, write_manifest
from asd.rundir.statefile import save_state

# Who judged the last steps of an optimizer in this process, as with a `StepMonitor` for each `Model.train`.
_judged: weakref.WeakKeyDictionary[nn.Cell, tuple[Monitor, Health]] = weakref.WeakKeyDictionary()


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
            Whether the state of its last step was restored. If there is none that can be, it is a problem in a process
            that did not make the steps.
        """
        count, given, earlier, is_last = count_of(optimizer), self._resume_from, None, False
        self._resume_from = None  # of the first training; this process knows more about the next one
        if optimizer is not None:
            if given is None and optimizer in _judged:
                judge, health = _judged[optimizer]
                earlier = {**judge.state(), "tainted_from": health.tainted_from}
                is_last = count in (None, judge.updates)
            _judged[optimizer] = self.monitor, self._health
        self.monitor.updates, updates = count or 0, max(0, count or 0)
        folders = [*self.files.folders(), Path(self._config.run_dir)]
        try:
            if is_last:
                return self._take_over(earlier)
            file = getattr(counter_of(optimizer), FILE, None)
            return self._take_over(state_to_resume(given, folders, self.monitor.origin.rank, updates, self.label, file))
        except StateError as error:
            if earlier is None:
                self.monitor.problem(f"{error} The rules learn from the start.")
        # Another `StepMonitor` of this process has judged with other settings, or the last updates had no judge.
        with contextlib.suppress(StateError):
            self._take_over(earlier)
        return False

    def follow_roll_back(self, updates: int) -> bool:
        """Restores the state of the step to which MindSpore rolled back; without one the rules keep their state.

        Returns:
            Whether a state was restored.
        """
        self.monitor.updates = updates
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

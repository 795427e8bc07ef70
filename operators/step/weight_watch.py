"""Reports when the ranks' weights differ, and distrusts the checkpoints that no comparison has proved good."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from mindspore import Parameter

from asd.operators.gate.part import Part, StepRecord
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import WeightComparison
from asd.rundir.checkpoint_health import Health
from asd.rundir.manifest import taint

__all__ = ["WeightWatch"]


class WeightWatch(Part):
    """That of one `StepMonitor`; until `watch` is called nothing is compared.

    Args:
        health: Tainted from the first step after which the weights may have differed.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._every = 0
        self._comparison = WeightComparison((), Exchange(), 0)
        self._announced = 0
        self._unproven: list[Path] = []

    def watch(self, weights: Iterable[Parameter], every: int) -> None:
        """Compares `weights` over the ranks from now on; `every` is the number of steps between, 0 for never."""
        self._every = every
        self._comparison = WeightComparison(weights, self.ranks, every)
        self._announced, self._unproven = self.table.announced(self.gate), []

    @property
    def words(self) -> str:
        """How often they are compared; empty for never."""
        return f"over the ranks, every {self._every} steps" if self._comparison.active else ""

    def wrote(self, checkpoint_file: Path) -> None:
        """Says that this rank wrote a checkpoint; all ranks compare their weights after the next step then."""
        if self._comparison.active:
            self._unproven.append(checkpoint_file)
            self.table.announce(self.gate)

    def compare(self, step: StepRecord) -> None:
        """Asks whether all ranks have the same weights, if it is time; adds the event if they have not.

        Raises:
            RankLostError: A rank did not answer.
        """
        monitor, before = self.monitor, self._announced
        self._announced = self.table.announced(self.gate)
        begin = time.perf_counter()
        if self.ranks.lost is not None:
            raise self.ranks.lost
        found = self._comparison.after(step.number, announced=self._announced > before)
        monitor.status.check_seconds += time.perf_counter() - begin
        if found is None:
            if self._comparison.alike == step.number:
                self._unproven = []
            return
        if not self._comparison.active:
            monitor.problem(f"weights are not compared over the ranks, for they began unlike: {found.reason}")
            return
        step.damage = monitor.weights_differ(step.number, found)
        step.events.append(step.damage)
        first = (self._comparison.alike or 0) + 1
        self._health.taint(first)
        for file in self._unproven:
            try:
                taint(file, first)
            except OSError as error:
                monitor.problem(f"the manifest of {file} can't be written: {error.strerror or error}")

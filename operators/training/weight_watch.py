"""Reports when the ranks' weights differ, and distrusts the checkpoints that no comparison has proved good."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from mindspore import Parameter

from asd.checkpoint_health import Health
from asd.event import Event
from asd.manifest import taint
from asd.monitor import Monitor
from asd.operators.exchange import Exchange
from asd.operators.gate import Gate
from asd.operators.slots import table
from asd.operators.weights import WeightComparison

__all__ = ["WeightWatch"]


class WeightWatch:
    """That of one `StepMonitor`; until `watch` is called nothing is compared.

    Args:
        health: Tainted from the first step after which the weights may have differed.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._ranks, self._every = Exchange(), 0
        self._comparison = WeightComparison((), self._ranks, 0)
        self._announced = 0
        self._gate: Gate | None = None
        self._unproven: list[Path] = []

    def watch(self, weights: Iterable[Parameter], ranks: Exchange, every: int, gate: Gate) -> None:
        """Compares `weights` over `ranks` from now on; `every` is the number of steps between, 0 for never."""
        self._ranks, self._every = ranks, every
        self._comparison = WeightComparison(weights, ranks, every)
        self._gate = gate
        self._announced, self._unproven = table().announced(gate), []

    @property
    def words(self) -> str:
        """How often they are compared; empty for never."""
        return f"over the ranks, every {self._every} steps" if self._comparison.active else ""

    def wrote(self, checkpoint_file: Path) -> None:
        """Says that this rank wrote a checkpoint; all ranks compare their weights after the next step then."""
        if self._comparison.active:
            self._unproven.append(checkpoint_file)
            table().announce(self._gate)

    def after(self, monitor: Monitor, step: int) -> Event | None:
        """Whether all ranks have the same weights, if it is time to ask; the event if they have not.

        Raises:
            RankLostError: A rank did not answer.
        """
        announced, self._announced = table().announced(self._gate) - self._announced, table().announced(self._gate)
        begin = time.perf_counter()
        if self._ranks.lost is not None:
            raise self._ranks.lost
        found = self._comparison.after(step, announced=announced > 0)
        monitor.status.check_seconds += time.perf_counter() - begin
        if found is None:
            if self._comparison.alike == step:
                self._unproven = []
            return None
        if not self._comparison.active:
            monitor.problem(f"weights are not compared over the ranks, for they began unlike: {found.reason}")
            return None
        event = monitor.weights_differ(step, found)
        first = (self._comparison.alike or 0) + 1
        self._health.taint(first)
        for file in self._unproven:
            try:
                taint(file, first)
            except OSError as error:
                monitor.problem(f"the manifest of {file} can't be written: {error.strerror or error}")
        return event

"""Reports when the ranks' weights differ, and distrusts the checkpoints that no comparison has proved good."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from mindspore import Parameter

from asd.operators.gate.part import Part, StepRecord
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import WeightComparison
from asd.operators.table.message import answer_of, message_of
from asd.rules.diagnosis.weights import Difference
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
        self._comparison = WeightComparison((), Exchange(), 0)
        self._announced = self._steps = 0
        self._seconds_before = 0.0
        self._unproven: list[Path] = []

    def watch(self, weights: Iterable[Parameter], every: int) -> None:
        """Compares `weights` over the ranks from now on; not more often than `every` so many steps, or never for 0."""
        self._comparison = WeightComparison(weights, self.ranks, every)
        self._steps, self._seconds_before = 0, self.monitor.status.step_seconds
        self.table.drop_message(self.gate)
        self._announced, self._unproven = self.table.announced(self.gate), []

    @property
    def words(self) -> str:
        """How often they are compared; empty for never."""
        comparison = self._comparison
        return f"over the ranks, every {comparison.every} steps" if comparison.active else ""

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
        self._steps += 1
        if self.ranks.lost is not None:
            raise self.ranks.lost
        found = self._look(step.number, announced=self._announced > before)
        monitor.status.check_seconds += time.perf_counter() - begin
        if found is None:
            if self._comparison.alike == step.number:
                self._unproven = []
            return
        if not self._comparison.active:
            monitor.problem(f"weights are not compared over the ranks, for they began unlike: {found.reason}")
            return
        step.damage = monitor.publish(monitor.reports.weights_differ(step.number, found))
        step.events.append(step.damage)
        first = (self._comparison.alike or 0) + 1
        self._health.taint(first)
        for file in self._unproven:
            try:
                taint(file, first)
            except OSError as error:
                monitor.problem(f"the manifest of {file} can't be written: {error.strerror or error}")

    def _look(self, step: int, *, announced: bool) -> Difference | None:
        """What the ranks found; their hashes go with the next update where they can, and else right now.

        All that decides whether there is an exchange is the same on all ranks.
        """
        monitor, comparison, gate, before, alike = self.monitor, self._comparison, self.gate, self.words, True
        comparison.roll_back(step)
        told = comparison.told
        if (sums := self.table.heard(gate)) is not None:
            alike, wish = answer_of(sums, self.ranks.size)
            comparison.heard(alike=alike, wish=wish)
        # The first step has no time.
        wish = comparison.wish((monitor.status.step_seconds - self._seconds_before) / max(self._steps - 1, 1))
        due = comparison.is_due(step)
        # A hash that was told and that no update took along: the updates are not those of a guarded optimizer.
        goes_with_update = due and comparison.whole and gate.carries and not comparison.told
        found = comparison.after(step, now=announced or not alike or (due and not goes_with_update), wish=wish)
        if told and not comparison.told:
            self.table.drop_message(gate)
        if not alike and found is None:
            monitor.problem(f"the ranks told unlike hashes of their weights after step {told}, and are alike now")
        if goes_with_update and comparison.active and found is None and comparison.alike != step:
            self.table.tell(message_of(comparison.hash_after(step), wish), gate)
        if self.words != before:
            monitor.protections.has(weight_comparison=self.words)
            monitor.status.protections = monitor.protections.to_json()
        return found

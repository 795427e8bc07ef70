"""Reports when the weights of replicas differ, and taints checkpoints that no comparison has proved good."""

import time
from collections.abc import Iterable

from mindspore import Parameter

from asd.judge.protections import Off
from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import WeightComparison
from asd.rundir.manifest import Health


class WeightWatch(Part):
    """Comparison of weights for one `StepMonitor`; nothing is compared until `watch` is called.

    Args:
        health: Tainted from the first step after which the weights may have differed.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._comparison = WeightComparison((), Exchange(), 0)

    def watch(self, weights: Iterable[Parameter], every: int) -> None:
        """Starts to compare `weights` over the ranks, each `every` steps; never if 0."""
        self._comparison = WeightComparison(weights, self.ranks, every)

    @property
    def words(self) -> str:
        """Returns how often weights are compared over the ranks, as text."""
        every = self._comparison.every
        return f"over the ranks, every {every} steps" if self._comparison.active else Off("not compared between ranks")

    def compare(self, step: StepRecord) -> None:
        """Compares the ranks' weights if a comparison is due, and adds an event if they differ.

        Raises:
            RankLostError: A rank did not answer.
        """
        monitor, comparison, before = self.monitor, self._comparison, self.words
        begin = time.perf_counter()
        if self.ranks.lost is not None:
            raise self.ranks.lost
        comparison.roll_back(step.number)
        found = comparison.after(step.number)
        if self.words != before:
            monitor.has(weight_comparison=self.words)
        monitor.status.check_seconds += time.perf_counter() - begin
        if found is None:
            if self._comparison.alike == step.number:
                self._health.proofs.add("replicas")
            return
        if not (comparison.active and found.weights):
            why = "" if comparison.active else "they differ at the start: "
            monitor.problem(f"weights are not compared over the ranks: {why}{found.reason}")
            return
        step.events.append(monitor.publish(monitor.reports.weights_differ(step.number, found)))
        if not found.is_rounding:
            step.damage = step.events[-1]
            for problem in self._health.taint_from((comparison.alike or 0) + 1):
                monitor.problem(problem)

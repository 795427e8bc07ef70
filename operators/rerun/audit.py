"""A step made twice now and then, the first time with the gate closed: both must come to the same bits."""

from __future__ import annotations

import mindspore as ms

from asd.operators.gate.part import Part, StepRecord
from asd.operators.measure.step_tensors import bits_of_first
from asd.operators.probe.vendor import VendorTools
from asd.operators.rerun.repeatable_step import RepeatableStep, is_known
from asd.rules.diagnosis.rerun import StepResult, difference
from asd.rundir.manifest import Health

__all__ = ["EVERY", "FIRST", "Audit"]

FIRST, EVERY = 10, 200
"""The first audit shows whether a step gives the same twice at all; later ones take 0.5 % of the time. In none of these
steps results of layers are sampled, which a step that is made twice would see once."""
_ROUNDING = 2.0**-10
"""What is less than so much apart, relative, may be the order of a sum that changes by itself: nobody is blamed."""


class Audit(Part):
    """The audits of one `StepMonitor`; until `watch` is called there is none.

    Args:
        health: What is found is added to it.
        vendor: Checks the products of a step that leaves no trace.

    Attributes:
        first: What the step that comes came to with the gate closed; None in most steps.
    """

    def __init__(self, health: Health, vendor: VendorTools) -> None:
        self._health, self._vendor = health, vendor
        self.first: StepResult | None = None
        self._ended, self._is_proved = "", False

    def watch(self) -> None:
        """A training begins."""
        self._ended, self._is_proved, self.first = "", False, None

    def make(self, again: RepeatableStep, obstacle: str) -> None:
        """Makes the step that comes without a trace; in data parallel a call of all ranks.

        Args:
            again: The step.
            obstacle: Why steps like the last one must not be made again, if so.

        Raises:
            RankLostError: Another rank did not answer.
        """
        # One rank alone may have ended its audits: the others must hear of it, or they would wait for it.
        told = self.ranks.tell(obstacle=self._ended or obstacle or self._obstacle(again))
        reasons = [rank["obstacle"] for rank in told if rank["obstacle"]]
        if reasons:
            self._end(reasons[0])
            return
        self._say(f"one step of {EVERY} is made twice")
        with self._vendor.products(), again.without_a_trace():
            first, failure = again.rerun_discarding()
        self.first = None if failure else first

    def _obstacle(self, again: RepeatableStep) -> str:
        if not self.ranks.groups.whole:
            return "ranks hold parts of the network, so one's fault would be seen by others"
        step = again.step
        is_compiled = step is not None and is_known(step.run) and ms.get_context("mode") == ms.GRAPH_MODE
        if step is None or not (step.audited or is_compiled):
            return "Python runs in a step and may count it: declare that it does not, by watch_step(step, audit=True)"
        if ms.get_context("device_target") != "CPU" and ms.get_context("deterministic") != "ON":
            return "the device need not be deterministic: set mindspore.set_deterministic(True)"
        return ""

    def compare(self, step: StepRecord) -> None:
        """Compares the step with what was made before it; adds a first-level event of the device if it differs."""
        first, self.first = self.first, None
        if first is None or step.refused or step.again or step.readings is None:
            return
        second = StepResult.of(bits_of_first(step.outputs), step.readings)
        changed = difference(first, second, with_loss=self.ranks.size == 1)
        far = difference(first, second, with_loss=False, least=_ROUNDING)
        if far and self._is_proved:
            reason = f"the same step came to something else when it was made twice: {far}"
            self.accuse(step, self._health, rule="audit", where="step", reason=reason, wrong=1)
        elif changed:
            self._end(f"the step does not give the same twice: {changed}")
        self._is_proved = self._is_proved or not changed

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._say(f"not audited: {reason}")

    def _say(self, words: str) -> None:
        self.monitor.protections.has(audit=words)
        self.monitor.status.protections = self.monitor.protections.to_json()

"""Duplicate execution of some steps, with the gate closed: each rank's own step, or the step of one rank by all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter

from asd.diagnosis.rerun import StepResult, difference
from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.ranks.weights import hashes_of, total_of
from asd.operators.rerun.repeatable_step import RepeatableStep, is_known
from asd.operators.rerun.step_tensors import bits_of_first
from asd.operators.rerun.vendor import VendorTools
from asd.rundir.manifest import Health

FIRST, EVERY = 50, 200
"""The first audit shows whether a step gives the same twice at all; later ones take 0.5 % of the time. It is not made
earlier, for kernels of the CPU try in up to 50 launches how to divide their work: one launch more would move that
search, and last bits with it. In none of these steps results of layers are sampled, which an audit would see once."""
_TWO = 2  # with two results, the wrong one is unknown
_ROUNDING = 2.0**-10
"""Relative difference below which a changing order of a sum may be the cause: no device is blamed."""


class Audit(Part):
    """Audits of one `StepMonitor`; none before `watch` is called.

    Args:
        health: Findings are added to it.
        vendor: Checks the products of a step that leaves no trace.

    Attributes:
        first: Result of the coming step with the gate closed; None in most steps.
        apart: Difference of this rank's result in another rank's step, in words; mostly empty.
    """

    def __init__(self, health: Health, vendor: VendorTools) -> None:
        self._health, self._vendor = health, vendor
        self.first: StepResult | None = None
        self._ended = self._alone = self.apart = ""
        self._is_proved = False

    def watch(self) -> None:
        """Begins a training."""
        self._ended = self._alone = self.apart = ""
        self._is_proved, self.first = False, None

    def make(self, again: RepeatableStep, obstacle: str, number: int, weights: Sequence[Parameter]) -> None:
        """Runs the coming step without a trace; in data parallel a call of all ranks.

        There every second audit is the step of one rank, run by all.

        Args:
            again: The step.
            obstacle: Reason why steps like the last one must not be re-run, if any.
            number: Of the step.
            weights: What has to be alike on the ranks.

        Raises:
            RankLostError: Another rank did not answer.
        """
        # One rank alone may have ended its audits: the others must hear of it, or they would wait for it.
        told = self.ranks.tell(obstacle=self._ended or obstacle or self._obstacle(again))
        reasons = [rank["obstacle"] for rank in told if rank["obstacle"]]
        if reasons:
            self._end(reasons[0])
            return
        self._say_how()
        turn, is_shared = divmod(number // EVERY, 2)
        with self._vendor.products(), again.without_a_trace():
            if is_shared and self.ranks.size > 1 and not self._alone:
                self._compare_ranks(again, turn % self.ranks.size, weights)
                return
            first, failure = again.rerun_discarding()
        self.first = None if failure else first

    def _compare_ranks(self, again: RepeatableStep, root: int, weights: Sequence[Parameter]) -> None:
        """Runs the step of `root` on all ranks; a rank whose result differs from all others has a bad device."""
        ranks = self.ranks
        is_root = ranks.rank == root
        parcel = again.pack() if is_root else b""
        parcel = ranks.broadcast(parcel, root, ranks.tell(size=len(parcel))[root]["size"])
        answer, failure = again.rerun_discarding(b"" if is_root else parcel)
        text = answer._replace(loss="").to_json()  # which may be a mean over the ranks
        told = ranks.tell(failed=bool(failure), held=total_of(hashes_of(weights)), bits=total_of(text.encode()))
        bits = [each["bits"] for each in told]
        if len(set(bits)) == 1 or any(each["failed"] for each in told):
            return
        answers = [StepResult.from_json(each["answer"]) for each in ranks.tell(answer=text)]
        common = bits.index(Counter(bits).most_common(1)[0][0])
        odd = [rank for rank in range(ranks.size) if bits[rank] != bits[common]]
        far = difference(answers[odd[0]], answers[common], with_loss=False, least=_ROUNDING)
        if len({each["held"] for each in told}) > 1 or len(odd) > 1 or ranks.size == _TWO or not far:
            self._alone = f"ranks {odd[0]} and {common} do not come to the same: {far or 'other bits'}"
            self._say_how()
            if far and ranks.rank == 0:
                self.monitor.problem(f"with the batch of rank {root} {self._alone}")
        elif odd == [ranks.rank]:
            self.apart = f"on this rank the batch of rank {root} came to something else than on all others: {far}"

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
        apart, self.apart = self.apart, ""
        if apart:
            self.accuse(step, self._health, rule="audit", where="replica", reason=apart, wrong=1)
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

    def _say_how(self) -> None:
        shared = f"none with one rank's batch on all: {self._alone}" if self._alone else "every second one by all ranks"
        self._say(f"one step of {EVERY} is made twice" + (f", {shared}" if self.ranks.size > 1 else ""))

    def _say(self, words: str) -> None:
        self.monitor.protections.has(audit=words)
        self.monitor.status.protections = self.monitor.protections.to_json()

"""Duplicate execution of some steps, with the gate closed: each rank's own step, or the step of one rank by all."""

import json
import logging
from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter

from asd.diagnosis.spread import Spread, StepResult
from asd.judge.protections import Off
from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.ranks.weights import attempt, hashes_of, total_of
from asd.operators.rerun.repeatable_step import RepeatableStep, Step, is_known
from asd.operators.rerun.step_tensors import numbers_of_first
from asd.operators.rerun.vendor import VendorTools
from asd.rundir.manifest import Health

_LOG = logging.getLogger("asd.audit")
FIRST = {"CPU": 50}
"""First audited step after each start; 1 on other devices, where a bad restore shows then. Kernels of the CPU try in up
to 50 launches how to divide their work: one launch more would move that search, and last bits with it."""
EVERY = 200
"""Steps between two audits, which take 0.5 % of the time. In none of these steps results of layers are sampled."""
_TWO = 2  # with two results, the wrong one is unknown; and two steps in a row that nothing repeats are no chance


class Audit(Part):
    """Audits of one `StepMonitor`; none before `watch` is called.

    Args:
        health: Findings are added to it.
        vendor: Checks the products of a step that leaves no trace.

    Attributes:
        first: Result of the coming step with the gate closed; None in most steps.
        apart: Difference of this rank's result in another rank's step, in words; mostly empty.
        spread: How far two runs of a step are apart on this device.
    """

    def __init__(self, health: Health, vendor: VendorTools) -> None:
        self._health, self._vendor = health, vendor
        self.watch()

    def watch(self) -> None:
        """Begins a training."""
        self.spread = Spread()
        self.first: StepResult | None = None
        self._ended = self._alone = self.apart = ""
        self._begun = self._unlike = 0
        self._doubted = False
        self._first = FIRST.get(ms.get_context("device_target"), 1)

    def is_due(self, again: RepeatableStep | None, step: Step) -> bool:
        """Counts a step that begins; returns whether it is audited.

        Random numbers are known before a first step only of a graph, which can be compiled before it runs.
        """
        self._begun += 1
        if self._begun == self._first and again is not None and not again.can_be_searched(step):
            self._first += 1
        return self._begun >= self._first and (self._begun - self._first) % EVERY == 0

    def drop(self, *, is_first: bool) -> None:
        """Drops the result of a step that never ended, or that was one of several runs of a step."""
        if not is_first:
            self._end("a step consists of several declared runs")
        self.first = None

    @property
    def may_rerun_healthy(self) -> bool:
        """Returns whether another run of a healthy step moves no search of a kernel: from the first audit on."""
        return self._begun >= self._first

    def make(self, again: RepeatableStep, obstacle: str, weights: Sequence[Parameter]) -> None:
        """Runs the coming step without a trace; in data parallel a call of all ranks.

        There every second audit is the step of one rank, run by all, where the weights are alike. `obstacle` is the
        reason why steps like the last one must not be re-run, if any.
        """
        # One rank alone may have ended its audits: the others must hear of it, or they would wait for it.
        told = self.ranks.tell(obstacle=self._ended or obstacle or self._obstacle(again), waits=again.waits)
        if any(rank["waits"] for rank in told):  # ranks may hold other parts, but must audit the same step
            self._first += 1
            return
        reasons = [rank["obstacle"] for rank in told if rank["obstacle"]]
        if reasons:
            self._end(reasons[0])
            return
        self._say_how()
        turn, is_shared = divmod((self._begun - self._first) // EVERY, 2)
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
        again.fetch_batch()
        parcel, form = again.pack()
        told = ranks.tell(size=len(parcel), form=form)
        if not form or any(each["form"] != form for each in told):
            self._alone = "it cannot be sent to them"
            self._say_how()
            return
        parcel = ranks.broadcast(parcel, root, told[root]["size"])
        answer, failure = again.rerun_discarding(b"" if is_root else parcel)
        text = json.dumps(answer._replace(loss=())).encode()  # which may be a mean over the ranks
        hashes, unread = attempt(hashes_of, weights)
        told = ranks.tell(failed=bool(failure or unread), held=total_of(hashes), size=len(text))
        if any(each["failed"] for each in told):
            return
        right = StepResult.from_json(ranks.broadcast(text, root, told[root]["size"]))
        far = [each["far"] for each in ranks.tell(far=self.spread.surprise(answer, right))]
        odd = [rank for rank in range(ranks.size) if far[rank]]
        if not odd:
            self._health.proofs.add("audit")
            return
        words = far[odd[0]]
        if len(odd) == ranks.size - 1 > 1:  # all others
            odd = [root]
        if len({each["held"] for each in told}) > 1 or len(odd) > 1 or ranks.size == _TWO:
            self._alone = f"ranks {odd[0]} and {root} differ: {words}"
            self._say_how()
            if ranks.rank == 0:
                self.monitor.problem(f"with the batch of rank {root} {self._alone}")
        elif odd == [ranks.rank]:
            self.apart = f"on this rank the batch of rank {root} has a different result than on all others: {words}"

    def _obstacle(self, again: RepeatableStep) -> str:
        if not self.ranks.groups.whole:
            return "ranks hold parts of the network, so one's fault would be seen by others"
        step = again.step
        is_compiled = step is not None and is_known(step.run) and ms.get_context("mode") == ms.GRAPH_MODE
        if step is None or not (step.audited or is_compiled):
            return "Python runs in a step and may count it: declare that it does not, by watch_step(step, audit=True)"
        return ""

    def compare(self, step: StepRecord) -> None:
        """Compares the step with what was made before it; adds a first-level event of the device if it differs."""
        first, self.first = self.first, None
        apart, self.apart = self.apart, ""
        if apart and not self._doubt(apart):
            self.accuse(step, self._health, rule="audit", where="replica", reason=apart, wrong=1)
        if first is None or step.refused or step.again or step.readings is None:
            return
        second = StepResult.of(numbers_of_first(step.outputs), step.readings)
        if far := self.spread.surprise(first, second):
            reason = f"two runs of the same step differ: {far}"
            if not self._doubt(reason):
                self.accuse(step, self._health, rule="audit", where="step", reason=reason, wrong=1)
            return  # a flaky core must not teach its own limit
        is_known, far = self.spread.most >= 0, self.spread.learn(first, second)
        self._unlike = self._unlike + 1 if far else 0
        if self._unlike == _TWO:
            self._end(f"two runs of a step differ by more than a relevant fault: {far}")
            self.monitor.protections.lacks("ASD_OPTIONS:replay", self._ended)
            self.monitor.protections.tell()
        elif not far:
            self._health.proofs.add("audit")
            self._say_how()
            if not is_known:
                _LOG.log(logging.INFO if self.spread.most else logging.DEBUG, "%s", self._how_far())

    def _doubt(self, reason: str) -> bool:
        """Returns whether a finding is the first where last bits vary, and reports it: one may come from a choice."""
        if self._doubted or not self.spread.most > 0:
            return False
        self._doubted = True
        self.monitor.problem(f"{reason}; last bits vary on this device, so only another such finding accuses it")
        return True

    def _how_far(self) -> str:
        how = f"up to {self.spread.most:.2g} apart" if self.spread.most else "alike bit for bit"
        wild = f", and further at {len(self.spread.wild)} checkpoints, which are not compared"
        return f"two runs of a step are {how} on this device{wild if self.spread.wild else ''}"

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._say(Off(reason))

    def _say_how(self) -> None:
        shared = f"never one rank's batch on all: {self._alone}" if self._alone else "every second one by all ranks"
        far = f"; {self._how_far()}" if self.spread.most >= 0 else ""
        self._say(f"one step of {EVERY} runs twice" + (f", {shared}" if self.ranks.size > 1 else "") + far)

    def _say(self, words: str) -> None:
        self.monitor.has(audit=words)

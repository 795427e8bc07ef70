"""Reruns of a step, to confirm an anomaly or to attribute it: a state machine, with its table of transitions below."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from mindspore import Parameter, nn

from asd.config import Config
from asd.diagnosis.attribution import Attribution
from asd.diagnosis.flow import blame_among
from asd.diagnosis.rerun import Diagnosis
from asd.diagnosis.spread import StepResult
from asd.errors import RankLostError
from asd.event import Event
from asd.judge.confirmation import Allowance, vanished
from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.ranks.attribution import words_of_vanished
from asd.operators.rerun.audit import Audit
from asd.operators.rerun.repeatable_step import RepeatableStep, Step
from asd.operators.rerun.sibling_runs import breaks, run_together
from asd.operators.rerun.step_tensors import numbers_of_first
from asd.operators.rerun.sunk import why_not_kept
from asd.operators.rerun.vendor import VendorTools
from asd.operators.sensors.loss_scale import LossScale
from asd.operators.sensors.own_gradients import weights_in
from asd.rules.reading import AVERAGED, Reading

_NOT_ARMED = "it was not saved, or the share of reruns is used up"


class State(Enum):
    """State of the reruns of one training."""

    UNKNOWN = "no network is known, so no step is re-run"
    IDLE = "no step is kept"
    KEPT = "the initial state of the step is kept"
    ARMED = "it is kept, and the gate refuses suspicious values too"
    MADE = "the step has run; where its update is refused it is confirmed, judged, and attributed"


_KNOWN = (State.IDLE, State.KEPT, State.ARMED, State.MADE)
TRANSITIONS: Mapping[str, Mapping[State, State]] = {
    "watch": {State.UNKNOWN: State.IDLE},
    "remember": dict.fromkeys(_KNOWN, State.KEPT),  # a step may consist of several runs
    "arm": {State.KEPT: State.ARMED},
    "end": {State.KEPT: State.MADE, State.ARMED: State.MADE},
    "forget": dict.fromkeys(_KNOWN, State.IDLE),
}
"""Next state by what occurs and by state; in a state that is not listed nothing changes."""


class Rerun(Part):
    """Reruns of one `StepMonitor`; until `watch` is called it knows no step.

    Args:
        config: Share of the steps that may be re-run to confirm.
        attributes: Whether refused steps are re-run to attribute them.
        scaler: Holds the loss scale; its Parameters are put back as those of the network are.
        audit: Runs steps twice.
        vendor: Checks products of reruns, and of one step in a fixed number.
        write_limits: Writes the gate's limits anew, see `StepReader`.
        check_again: Keeps the sampled results that are due so until the step ends, and with `more` adds some.

    Attributes:
        state: Current state.
        again: The step that may be re-run; None in state `UNKNOWN`.
        sunk: Steps of a call with sunk data; 0 where data are not sunk.
    """

    def __init__(
        self,
        config: Config,
        scaler: Any,
        audit: Audit,
        vendor: VendorTools,
        *,
        attributes: bool,
        write_limits: Callable[..., None],
        check_again: Callable[..., None],
    ) -> None:
        self.attributes, self.confirms = attributes, config.confirm > 0
        self._config, self._scaler, self.audit, self._vendor = config, scaler, audit, vendor
        self._write_limits, self._check_again = write_limits, check_again
        self._allowance = Allowance(config.confirm)
        self.state, self._may_arm = State.UNKNOWN, False
        self.again: RepeatableStep | None = None
        self._why_not = "no optimizer was given" if config.refuses else "ASD_ON_ANOMALY is log, so no update is refused"
        self.sunk = 0

    def _note(self, occurs: str) -> State:
        """Changes the state by `TRANSITIONS`, and the gate's limits with it; returns the state before."""
        before = self.state
        self.state = TRANSITIONS[occurs].get(before, before)
        self.gate.second_level = self.state is State.ARMED
        return before

    # Before the first step.

    def watch(self, net: nn.Cell | None, optimizer: nn.Cell) -> None:
        """Makes the steps of `net` repeatable; must be called before it is compiled."""
        self.again, self.state, self._may_arm = None, State.UNKNOWN, False
        if not (self.attributes or self.confirms):
            return
        self._why_not = "the network is not known" if net is None else why_not_kept(self.sunk) if self.sunk else ""
        if self._why_not or net is None:
            return
        held = vars(self._scaler).values() if hasattr(self._scaler, "__dict__") else ()
        also = [value for value in held if isinstance(value, Parameter)]
        self.again = RepeatableStep(net, optimizer, self.table, self.gate, also)
        self._weights = weights_in(net, optimizer)
        self.audit.watch()
        self._note("watch")

    def report_protection(self, *, after_first_step: bool = False) -> None:
        """Reports whether steps are re-run, or why not; much of that is known after the first step only."""
        settings = (("ASD_OPTIONS:replay", self.attributes), ("ASD_OPTIONS:confirm", self.confirms))
        asking = [name for name, asks in settings if asks]
        reason = self._why_not if self.again is None else self.again.obstacle_later() if after_first_step else ""
        for name in asking if reason else ():
            self.monitor.protections.lacks(name, f"no step is re-run: {reason}")
        share = f"of {100 * self._config.confirm:.3g} % of the steps at most"
        self.monitor.protections.has(
            second_look=share if self.confirms and not reason else "",
            replay="of refused steps" if self.attributes and not reason else "",
        )

    def lose(self, reason: str) -> None:
        """Re-runs no step from now on, for `reason`."""
        self.again, self.state, self._why_not = None, State.UNKNOWN, reason
        self.gate.second_level = False

    # A step begins.

    def remember(self, step: Step, *, is_first: bool) -> None:
        """Keeps the initial state of the next step; its suspicious update is refused if it can be re-run.

        Only for the first run since one was judged, as it is unknown which of several would be re-run.
        """
        if self.audit.first is not None:
            self.audit.drop(is_first=is_first)
        is_due = is_first and self.audit.is_due(self.again, step)
        if self.again is not None:
            self._keep(self.again, step, audits=is_due, arms=is_first)
        if is_due and self.audit.first is None:
            self._vendor.start()

    def _keep(self, again: RepeatableStep, step: Step, *, audits: bool, arms: bool) -> None:
        is_new = again.step is None
        obstacle = (again.obstacle_to_next() or self._compile(again)) if audits and not is_new else ""
        was_known = again.is_repeatable is not None
        again.remember(step)
        if again.is_repeatable is False and not was_known:
            self.report_protection(after_first_step=True)
            self.monitor.tell_protections()
        self._note("remember")
        if audits:
            self.audit.make(again, again.obstacle_to_such(compiles=True) if is_new else obstacle, self._weights)
        if self.confirms:
            if arms and self._may_arm:
                self._note("arm")
            self._write_limits(always=False)

    def _compile(self, again: RepeatableStep) -> str:
        """Compiles the graph of reruns where data are sunk, and reports its cost; returns why it can't, if so."""
        reason = again.compile_rerun()
        if again.cost:
            self.monitor.has(sunk_data=f"the graph that re-runs a step was {again.cost}")
        return reason

    # It was made.

    def end(self, step: StepRecord) -> None:
        """Confirms a refused step before the program can write anything; in data parallel a call of all ranks.

        After a refusal the readings are in the record; else they are still in the slots.
        """
        before = self._note("end")
        if step.refused and self.confirms:
            self._confirm(step, armed=before is State.ARMED)
        if self.again is not None and self.again.note_end(refused=step.refused and self.attributes):
            self.report_protection(after_first_step=True)
            self.monitor.tell_protections()

    def _confirm(self, step: StepRecord, *, armed: bool) -> None:
        """Re-runs a step whose update was refused, if that is due."""
        monitor, again, scale = self.monitor, self.again, step.scale
        first = self.table.read(self.gate.sites, self.gate) if step.readings is None else step.readings
        step.readings = first
        armed |= step.shown > 0
        try:
            told = self.ranks.tell(
                obstacle=again.obstacle_to_refused() or self._compile(again) if armed and again else _NOT_ARMED,
                broken=any(monitor.judges.is_broken(each, scale) for each in first),
                suspicious=self.gate.mended or any(monitor.judges.suspicion(each, scale) is not None for each in first),
            )
            self.table.forget_limits()  # a lost write of those of the rerun explains no refusal
            self._write_limits(scale=step.shown or scale)
            if not any(rank["suspicious"] for rank in told):
                return
            reasons = [rank["obstacle"] for rank in told if rank["obstacle"]]
            if again is not None and not reasons:
                reasons = self._make_for_good(step, again, first)
        except RankLostError:  # the exchange keeps it, which ends the step
            return
        if reasons and not step.shown and not any(rank["broken"] for rank in told):
            step.lost = reasons[0]
            self._allowance = Allowance(0.0)  # no later one is held back

    def _make_for_good(self, step: StepRecord, again: RepeatableStep, first: Sequence[Reading]) -> list[str]:
        """Replaces the step by its rerun; returns why the rerun failed, for each rank where it did."""
        self._allowance.spend()
        self.gate.mended = False
        self._check_again(more=True)
        with self._vendor.products():
            outputs, failure = again.rerun_for_good()
        second = self.table.read(self.gate.sites, self.gate)
        failures = [rank["failure"] for rank in self.ranks.tell(failure=failure) if rank["failure"]]
        if failures:
            return failures
        step.shown *= LossScale.are_alike(step.shown, LossScale.shown_by(second, self._config.upper))
        step.scale = step.shown or step.scale
        judges, wild = self.monitor.judges, self.audit.spread.wild  # healthy runs differ there
        gone = vanished([each for each in first if each.checkpoint not in wild], second, judges, step.scale)
        step.elsewhere, step.attribution = self._whose(gone, first)
        step.vanished = gone
        step.readings, step.outputs, step.again = second, outputs, True
        step.refused = self.table.newly_refused(self.gate) > 0
        if step.refused:  # anomalies of the rerun count
            step.vanished, step.elsewhere, step.attribution = (), False, None
        return []

    def _whose(self, gone: Sequence[Reading], first: Sequence[Reading]) -> tuple[bool, Attribution | None]:
        """Returns whether suspicious values vanished on any rank, and the ranks that they are attributed to."""
        if self.ranks.size == 1:
            return bool(gone), None
        found = blame_among(words_of_vanished(self.ranks, gone, first), self.ranks.groups)
        return found is not None, found

    def prepare(self, step: StepRecord) -> None:
        """Has the limits after this step ask for suspicious updates too, where a next one like it can be re-run."""
        looks, is_declared = self._allowance, self.state is State.MADE
        self._may_arm = is_declared and looks.next_step() and self.again is not None and bool(self.again.is_repeatable)
        self.gate.second_level = self._may_arm
        if self._may_arm and not step.again:  # else what vanished is judged yet by the limits that it was beyond
            share = looks.for_looks if self.audit.may_rerun_healthy else 0.0
            self.monitor.judges.look(share, self.ranks.size, looks.moved)

    # It was judged.

    def report_transient(self, step: StepRecord) -> None:
        """Reports what a first-level anomaly is that a second run did not show again."""
        anomaly = next((event for event in step.events if event.kind == "anomaly" and event.healed), None)
        if step.vanished and anomaly is not None:
            finding = Diagnosis("transient", "within its limits in a rerun of the step")
            self._publish(step, anomaly, _of_one_rank(finding, step.attribution))

    def attribute(self, step: StepRecord) -> None:
        """Re-runs a refused step to find the device to blame; in data parallel a call of all ranks.

        It adds the verdict about this rank, if that has an anomaly of its own.

        Raises:
            RankLostError: Another rank did not answer.
        """
        if not step.refused or step.is_link:
            return
        whose, kinds = step.attribution, {reading.checkpoint: reading.kind for reading in self.monitor.readings}
        anomaly = step.fatal
        if anomaly is not None and (anomaly.kind != "anomaly" or anomaly.step != step.number):
            anomaly = None
        # The first anomaly is what began it: where that is a mean, nothing that this rank computed alone broke a limit.
        in_mean = anomaly is not None and kinds.get(anomaly.checkpoint) == AVERAGED
        if anomaly is not None and anomaly.rank < 0 and (in_mean or whose is None or not whose.names_nobody):
            anomaly = None
        finding = self._diagnosed(step, None if in_mean else anomaly)
        if in_mean:
            finding = Diagnosis("undetermined", "a mean over the ranks belongs to no single rank")
        if anomaly is None or finding is None:
            return
        if finding.verdict == "software":
            data = f"; if it is data, then the batch of rank {self.ranks.rank} in step {anomaly.step}"
            finding = finding._replace(reason=finding.reason + data)
        if finding.same_twice and self.monitor.judges.lasts(step.broken):
            self._go_on()
        self._publish(step, anomaly, _of_one_rank(finding, whose))

    def _diagnosed(self, step: StepRecord, anomaly: Event | None) -> Diagnosis | None:
        """Returns the verdict about this rank, None if it has no anomaly."""
        if self.again is None:
            return Diagnosis("undetermined", f"no step can be re-run: {self._why_not}")
        try:
            return self._made_without_a_trace(self.again, step, anomaly)
        except RankLostError:
            raise
        except Exception as error:  # whatever it is: the detector's own failure must not end a training
            self.monitor.problem(f"a step was not replayed: {error!r}")
            return Diagnosis("undetermined", f"the replay failed: {error}")

    def _made_without_a_trace(self, again: RepeatableStep, step: StepRecord, anomaly: Event | None) -> Diagnosis | None:
        original = StepResult.of(numbers_of_first(step.outputs), self.monitor.readings)
        obstacle = again.obstacle_to_refused() or self._compile(again)
        told = self.ranks.tell(suspect=anomaly is not None, obstacle=obstacle, moved=self.monitor.moved)
        suspects = [rank for rank, words in enumerate(told) if words["suspect"]]
        if not suspects:
            return None
        if all(words["moved"] for words in told):
            self._go_on(step)
            return Diagnosis("software", "on all ranks all places have moved by one factor: a change of the training")
        obstacles = [(rank, words["obstacle"]) for rank, words in enumerate(told) if words["obstacle"]]
        if obstacles:
            rank, reason = obstacles[0]
            where = "" if rank == self.ranks.rank else f"on rank {rank}: "
            return Diagnosis("undetermined", where + reason) if anomaly is not None else None
        abnormal = breaks(anomaly, step.scale)
        self._check_again(more=False)
        with self._vendor.products(), again.without_a_trace():
            finding = run_together(again, self.ranks, self._weights, original, suspects, abnormal, self.audit.spread)
        is_change = finding.verdict == "software" and self.monitor.judges.lasts(step.broken)
        if all(rank["change"] for rank in self.ranks.tell(change=anomaly is None or is_change)):
            self._go_on(step)
        return finding if anomaly is not None else None

    def _go_on(self, step: StepRecord | None = None) -> None:
        """Takes what lasted three steps, and no device did, for the level from now on; `step` ends no training then."""
        self.monitor.judges.begin_anew()
        self._write_limits()
        if step is not None:
            step.fatal = None

    def _publish(self, step: StepRecord, anomaly: Event, finding: Diagnosis) -> None:
        verdict, reason, _ = finding
        event = replace(anomaly, kind="replay", verdict=verdict, reason=reason, time=self.monitor.clock())
        step.events.append(self.monitor.publish(event))

    # It is over.

    def put_back_sums(self) -> str:
        """Puts back what the steps changed since the last update; returns why it can't if so."""
        return self.again.put_back_sums() if self.again is not None else f"no step is kept, for {self._why_not}"

    def forget(self, *, updated: bool) -> None:
        """Forgets the step, with or without an update: the next one may run without `remember`."""
        self._note("forget")
        self.gate.mended = False
        if self.again is not None:
            self.again.forget(updated=updated)


def _of_one_rank(finding: Diagnosis, whose: Attribution | None) -> Diagnosis:
    """Returns `finding`, as undetermined where it blames hardware but no rank can be named."""
    if whose is None or not whose.names_nobody or finding.verdict not in ("transient", "persistent"):
        return finding
    return Diagnosis("undetermined", f"{finding.reason}; {whose.reason}")

"""From the slots of a step to its verdicts, and back to the limits of the next one."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from mindspore import nn

from asd.config import Config
from asd.diagnosis.attribution import Attribution
from asd.errors import RankLostError
from asd.event import Event
from asd.operators.gate.step_record import Part, Problems, StepRecord
from asd.operators.ranks.attribution import attribution_of, whose_link
from asd.operators.sensors.loss_scale import LossScale
from asd.rules.reading import GRADIENT, SCORES, Reading
from asd.rundir.manifest import Health

_ADVICE = (
    "pass loss_scale= to StepMonitor if the loss is scaled, a number or the scaler; raise NPU_ASD_UPPER_THRESH if the "
    "gradients are so large"
)
_FAULTS = {
    "measured": "a known number that is measured with the gradients has a wrong value",
    "decided": "the gate applied or refused an update against the values that it read",
}
_NOTHING = "nothing was checked: the graph was compiled before the checks were put in, or no gradient reaches them"


class StepReader(Part):
    """Reader of the steps of one `StepMonitor`.

    Args:
        config: Names the detectors that are on.
        loss_scale: A `LossScale` or what it takes.
        health: Every event of a step is added to it.
        problems: Reports a problem that returns in every step once.

    Attributes:
        loss_scale: Source of the loss scale.
        scale: The loss scale of the step that is running.
        seeks: Whether no loss scale was given, and the first values are still to come or to be confirmed.
        found: Event of this rank's device that the other ranks have not heard of yet; None for none.

    Raises:
        ConfigError: `loss_scale` is not valid.
    """

    def __init__(self, config: Config, loss_scale: Any, health: Health, problems: Problems) -> None:
        self.loss_scale = loss_scale if isinstance(loss_scale, LossScale) else LossScale(loss_scale)
        self.scale = 1.0
        self.seeks = self._wrote_second = False
        self._held: StepRecord | None = None  # a first step that shows a loss scale, until the next one shows it too
        self._config, self._health, self._problems = config, health, problems
        self.found: Event | None = None

    def begin(self, optimizer: nn.Cell | None) -> None:
        """Writes the limits of the first step; earlier refusals do not count.

        Args:
            optimizer: Source of the loss scale if none was passed, else None.
        """
        if optimizer is not None and self.loss_scale.fixed == 1.0:
            self.loss_scale = LossScale(getattr(optimizer, "loss_scale", None))
            self.seeks = self.loss_scale.fixed == 1.0 and not self.monitor.step
            if self.loss_scale.fixed == 1.0 and self.monitor.found_scale:
                self.loss_scale = LossScale(self.monitor.found_scale, dynamic=True)
        self.gate.refused = self.table.refused(self.gate)
        self.write_limits()

    def write_limits(self, *, scale: float | None = None, always: bool = True) -> None:
        """Sets the limits of the next step, for loss scale `scale` or the one read; unless `always` if they changed."""
        if not always and self.gate.second_level == self._wrote_second and self.loss_scale.fixed is not None:
            return
        self._wrote_second = self.gate.second_level
        fixed = self.loss_scale.fixed if scale is None else scale
        self.scale = self.loss_scale.read() if fixed is None else fixed
        judges = self.monitor.judges
        limit_of = judges.second_limit if self.gate.second_level else judges.limit
        limits, least = [], []
        for site in self.gate.sites:
            # Any value is above the limit of a withheld update, also that of a slot that was not written.
            limits.append((site, -inf if self.gate.withholds else limit_of(site.name, site.kind)))
            if self.gate.second_level:
                least.append((site, judges.least(site.name)))
        self.table.set_limits(limits, self.scale, least, self.gate)

    def find_scale(self, step: StepRecord) -> None:
        """Looks for a loss scale that was not given: the first values of all ranks are too large by it."""
        if self.seeks:
            step.readings = self.table.read(self.gate.sites, self.gate)
            self.seeks, upper = not any(each.finite for each in step.readings), self._config.upper
            if self._config.rule == "adaptive":
                step.shown = LossScale.shown_by(step.readings, upper)
            elif any(each.kind == GRADIENT and each.value > upper[0] for each in step.readings):
                self._problems.once(f"gradients of activations are above {upper[0]:.15g} in the first step: {_ADVICE}")
        if self.ranks.size > 1:  # all refuse together
            try:
                told = [rank["shown"] for rank in self.ranks.tell(shown=step.shown)] if step.refused else [0.0]
            except RankLostError:  # the exchange keeps it, which ends the step
                told = [0.0]
            step.shown = max(told) if LossScale.are_alike(*told) else 0.0

    def judge(self, step: StepRecord) -> None:
        """Judges the step that has just been made; in data parallel a call of all ranks.

        It adds the events, and the first of first level. Readings of a confirmation rerun are used as they are.
        """
        if step.readings is None:
            step.readings = self.table.read(self.gate.sites, self.gate)
        self._report_fault(step)
        if self.ranks.size > 1 and self.gate.updates:
            self._report_links(step)
        if len(self.table.gates.living) > 2:  # the default one, and that of another monitor
            strays = [each for each in self.drop_strays() if each.kind in SCORES]
            wrong = [each for each in strays if self.monitor.judges.is_broken(each, self.scale)]
            step.readings = [*step.readings, *wrong]  # wrong results at their checkpoints are anomalies of this step
        if step.shown and self._held is None and not step.again:
            self._held, self.seeks = step, True
            self.write_limits()
            self._tell_scale(step, "The next step shows whether it is one")
        else:
            self._judge_now(step)

    def _judge_now(self, step: StepRecord) -> None:
        """Judges a step, after one that waited for it."""
        monitor, gate, held = self.monitor, self.gate, self._held
        self._held = None
        if step.shown and (held is None or LossScale.are_alike(step.shown, held.shown)):
            self.loss_scale, self.seeks = LossScale(step.shown, dynamic=True), False
            self.scale = step.scale = self.monitor.found_scale = step.shown
            self._tell_scale(step, "It is used as the loss scale from now on")
        if held is not None:
            held.scale = step.scale
            self._judge_values(held)
            step.events, step.fatal = held.events, held.fatal
        self._judge_values(step)
        if step.withheld:
            withheld = monitor.publish(monitor.reports.withheld(step.number, step.withheld))
            self._add(step, [withheld])
            step.fatal = step.fatal or withheld
        if step.fatal is None and ((step.refused and step.scale != step.shown) or step.elsewhere or step.lost):
            self._follow(step)
        self.write_limits()
        skipped = self.loss_scale.dynamic and not gate.updates and self.scale < step.scale  # by the loss scaler
        dropped, gate.dropped = gate.dropped, False
        if not (step.readings or skipped or dropped):
            self._problems.once(_NOTHING)
            monitor.protections.lacks("NPU_ASD_ENABLE", _NOTHING, told=True)

    def _tell_scale(self, step: StepRecord, what_follows: str) -> None:
        self.monitor.step, self.monitor.readings = step.number, step.readings or ()
        about = f"all values of step {step.number} are {step.shown:.0f} times too large, as by a loss scale"
        lost = ". The update of this step is lost" if step.refused else ""
        self.monitor.problem(f"{about}. {what_follows}: {_ADVICE}{lost}", cause="loss_scale")

    def _judge_values(self, step: StepRecord) -> None:
        """Judges the readings of a step; adds the events, and the first of first level."""
        self.monitor.reports.among = step.among
        if step.refused and self.ranks.size > 1:
            step.attribution = self._whose_fault(step)
            self._hear(step)
        outcome = self.monitor.judge(
            step.number,
            step.readings or (),
            loss_scale=step.scale,
            # The scaler skips the optimizer of a step in which it saw an overflow itself.
            overflow_expected=self.loss_scale.dynamic and not self.gate.updates,
            refused=step.refused,
            attribution=step.attribution,
            vanished=step.vanished,
        )
        if outcome.events:
            self._add(step, outcome.events)
        step.fatal = step.fatal or outcome.fatal

    def _report_fault(self, step: StepRecord) -> None:
        fault, self.gate.fault = self.gate.fault, ""
        if (fault or step.refused) and self.ranks.size > 1:
            self.table.align(self.gate, step.number)
        if fault:
            self.accuse(step, self._health, rule="gate", where=fault, reason=_FAULTS[fault], wrong=1)

    def _report_links(self, step: StepRecord) -> None:
        """Reports reductions that delivered wrong sums; all ranks see the same ones."""
        for link in {state.link: None for state in self.table.guards_of(self.gate) if state.link is not None}:
            if wrong := link.take():
                try:
                    found, ranks = whose_link(self.ranks, [link.names[i] for i in wrong], **link.words(wrong))
                except RankLostError:  # the exchange keeps it, which ends the step
                    return
                reports = self.monitor.reports
                event = self.monitor.publish(reports.link_fault(step.number, found, ranks, refused=step.refused))
                step.fatal, step.is_link = step.fatal or event, True
                self._add(step, [event])

    def _add(self, step: StepRecord, events: Sequence[Event]) -> None:
        step.events.extend(events)
        for event in events:
            self._health.add(event)

    def drop_strays(self) -> list[Reading]:
        """Removes and returns the readings that this step left at checkpoints of other monitors.

        These monitors have seen no update of their own since they last read: a step that runs through their
        network is not theirs. A step that updates both leaves both alone.
        """
        others = self.table.gates.others(self.gate)
        strangers = [other for other in others if other.guards and not self.table.updates(other)]
        return self.table.read([site for other in strangers for site in other.sites])

    def _follow(self, step: StepRecord) -> None:
        """Reports why an update was refused where nothing of this rank broke a limit: another rank's mostly did."""
        monitor = self.monitor
        if step.lost and not step.elsewhere:
            lost = "the update of a suspicious step is lost, as it cannot be re-run, and no later one is held back"
            monitor.problem(f"{lost}: {step.lost}")
        elif self.ranks.size == 1 and not step.elsewhere:
            self.accuse(step, self._health, rule="gate", where="decided", reason=_FAULTS["decided"], wrong=1)
        else:
            event = monitor.reports.follower(step.number, step.attribution)
            step.fatal = monitor.publish(replace(event, refused=False, healed=True) if step.elsewhere else event)
            self._add(step, [step.fatal])

    def tells_all(self, step: StepRecord) -> bool:
        """Has the next update refused for a finding of this rank alone, by which all hear of it; returns if it can."""
        gate, known = self.gate, step.refused or step.again or step.damage is not None or self.ranks.size == 1
        if step.fatal is None or known or not (gate.armed and gate.guards):
            return False
        self.found, gate.withholds = step.fatal, True
        self.write_limits()
        return True

    def _hear(self, step: StepRecord) -> None:
        """Takes in what a rank has found, for which the update was refused on all of them."""
        own, self.found = self.found, None
        if own is not None:
            step.fatal, self.gate.withholds = own, False
        try:
            told = self.ranks.tell(found=own.to_json() if own is not None else "")
        except RankLostError:  # as below
            return
        texts = [each["found"] for each in told if each["found"]]
        if texts and own is None:
            event = Event.from_json(texts[0])
            reason = f"rank {event.rank} found in step {event.step}: {event.reason}"
            follower = replace(self.monitor.reports.follower(step.number), incident=event.id, reason=reason)
            step.fatal = self.monitor.publish(follower)
            self._add(step, [follower])
            for problem in () if event.harmless else self._health.taint_from(event.step):  # as gradients are shared
                self.monitor.problem(problem)

    def _whose_fault(self, step: StepRecord) -> Attribution | None:
        monitor = self.monitor
        try:
            return attribution_of(
                self.ranks,
                monitor.seen(step.readings or (), loss_scale=step.scale),
                monitor.seen(step.readings or (), loss_scale=step.scale, averaged=True),
            )
        except RankLostError:
            pass  # what this one saw is judged all the same; the exchange keeps the error, which ends the step
        except Exception as error:  # as in `StepMonitor.step`
            monitor.problem(f"the ranks could not be compared: {error!r}")
        return None

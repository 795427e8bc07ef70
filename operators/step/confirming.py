"""A second look: a suspicious step is made again before its update is applied.

The gate gets second-level limits for a step that can be made again. If it refuses the update, all ranks make the step
once more, with the limits of the first level and the checksums of all products: that run is the step. See
`asd.rules.step.confirmation` for what is made of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from asd.config import Config
from asd.errors import RankLostError
from asd.operators.attach.recompute_schedule import RecomputeSchedule
from asd.operators.gate.part import Part, StepRecord
from asd.operators.ranks.attribution import words_of_vanished
from asd.operators.rerun.repeatable_step import Step
from asd.operators.rerun.step_replay import StepReplay
from asd.operators.step.step_reader import StepReader
from asd.rules.diagnosis.attribution import Attribution
from asd.rules.diagnosis.flow import blame_among
from asd.rules.readings.reading import OF_ALL_RANKS, SAMPLE, Reading
from asd.rules.step.confirmation import Allowance, blame, vanished

__all__ = ["Confirming"]

_NOT_ARMED = "it was not remembered, or enough steps were made again"


class Confirming(Part):
    """Of one `StepMonitor`.

    Args:
        config: How many steps may be made again.
        judging: Has the loss scale and writes the limits.
        replay: Knows the step.
        checksums: Are all due in a second run.
    """

    def __init__(self, config: Config, judging: StepReader, replay: StepReplay, checksums: RecomputeSchedule) -> None:
        self.wanted = config.confirm > 0
        self._allowance = Allowance(config.confirm)
        self._judging, self._replay, self._checksums = judging, replay, checksums
        self._armed = False
        self._lost = False  # an update whose step could not be made again: no later one is held back

    def prepare(self, step: Step) -> None:
        """Gives the gate second-level limits for the next step, which was remembered and is about to be made."""
        again = self._replay.step
        may_be = self._allowance.next_step() and again is not None and again.is_repeatable
        self._armed = may_be and not self._lost
        self._judging.write_limits(second_level=self._armed)

    def look_again(self, step: StepRecord) -> None:
        """Makes a step whose update was refused once more, if that is due; in data parallel a call of all ranks.

        What is to be judged is in the record then; without a refusal the readings are still in the slots.
        """
        armed, self._armed = self._armed, False
        if not step.refused:
            return
        monitor, judging, again, scale = self.monitor, self._judging, self._replay.step, step.scale
        first = step.readings = self.table.read(self.gate.sites, self.gate)
        try:
            told = self.ranks.tell(
                obstacle=again.obstacle_for_good() if armed and again is not None else _NOT_ARMED,
                # A dynamic loss scale finds its value by overflowing: that step is to be lost.
                overflow=judging.loss_scale.dynamic and scale > 1 and any(each.non_finite for each in first),
                broken=any(monitor.judges.is_broken(each, scale) for each in first if each.kind != SAMPLE),
                suspicious=any(monitor.judges.suspicion(each, scale) is not None for each in first),
            )
            judging.write_limits(scale=scale)
            if any(rank["overflow"] for rank in told) or not any(rank["suspicious"] for rank in told):
                return
            reasons = [rank["obstacle"] for rank in told if rank["obstacle"]]
            if again is not None and not reasons:
                self._allowance.spend()
                self._checksums.make_all_due()
                outputs, failure = again.rerun_for_good()
                second = self.table.read(self.gate.sites, self.gate)
                reasons = [rank["failure"] for rank in self.ranks.tell(failure=failure) if rank["failure"]]
                if not reasons:
                    self._compare(step, first, second)
                    step.readings, step.outputs, step.again = second, outputs, True
                    self._count(step)
                    return
        except RankLostError:  # the exchange keeps it, which ends the step
            return
        if not any(rank["broken"] for rank in told):
            self._lost = True
            step.lost = reasons[0]

    def _compare(self, step: StepRecord, first: Sequence[Reading], second: Sequence[Reading]) -> None:
        gone = vanished(first, second, lambda each: self.monitor.judges.suspicion(each, step.scale) is not None)
        step.elsewhere, step.attribution = self._whose(gone, first)
        step.vanished = gone

    def _count(self, step: StepRecord) -> None:
        """Where the second run is refused too, what is wrong in that one counts."""
        step.refused = self.table.newly_refused(self.gate) > 0
        if step.refused:
            step.vanished, step.elsewhere, step.attribution = (), False, None

    def tell_verdict(self, step: StepRecord) -> None:
        """Reports what a first-level anomaly is that a second run did not show again."""
        if not step.vanished:
            return
        anomaly = next((event for event in step.events if event.kind == "anomaly" and event.refused), None)
        if anomaly is None:
            return
        event = replace(
            anomaly, kind="replay", verdict="transient", time=self.monitor.clock(),
            reason="within its limits when the same step was made again",
        )  # fmt: skip
        self.monitor.publish(event)
        step.events.append(event)

    def _whose(self, gone: Sequence[Reading], first: Sequence[Reading]) -> tuple[bool, Attribution | None]:
        """Whether any rank has suspicious values that did not come again, and which ranks have some of their own."""
        if not self.ranks.groups.whole:
            words = words_of_vanished(self.ranks, gone, first)
            found = blame_among(words, self.ranks.groups)
            return found is not None, found
        own = next((reading.checkpoint for reading in gone if reading.kind not in OF_ALL_RANKS), "")
        mean = next((reading.checkpoint for reading in gone if reading.kind in OF_ALL_RANKS), "")
        told = self.ranks.tell(own=own, mean=mean)
        if self.ranks.size == 1:
            return bool(gone), None
        found = blame([(words["own"], words["mean"]) for words in told])
        return found is not None, found

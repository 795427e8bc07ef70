"""A second look: a suspicious step is made again before its update is applied.

The gate gets second-level limits for a step that can be made again. If it refuses the update, all ranks make the step
once more, with the limits of the first level and the checksums of all products: that run is the step. See
`asd.confirmation` for what is made of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from asd.attribution import Attribution
from asd.config import Config
from asd.confirmation import Allowance, blame, vanished
from asd.errors import RankLostError
from asd.event import Event
from asd.monitor import Monitor
from asd.operators.slots import table
from asd.operators.training.checksum_plan import ChecksumPlan
from asd.operators.training.judging import Judging, Look
from asd.operators.training.step_replay import StepReplay
from asd.reading import OF_ALL_RANKS, SAMPLE, Reading

__all__ = ["Confirming"]

_NOT_ARMED = "it was not remembered, or enough steps were made again"


class Confirming:
    """Of one `StepMonitor`.

    Args:
        config: How many steps may be made again.
        judging: Has the checkpoints and the loss scale.
        replay: Knows the step.
        checksums: Are all due in a second run.
    """

    def __init__(self, config: Config, judging: Judging, replay: StepReplay, checksums: ChecksumPlan) -> None:
        self.wanted = config.confirm > 0
        self._allowance = Allowance(config.confirm)
        self._judging, self._replay, self._checksums = judging, replay, checksums
        self._armed = False
        self._lost = False  # an update whose step could not be made again: no later one is held back

    def prepare(self, monitor: Monitor) -> None:
        """Gives the gate second-level limits for the next step, which was remembered and is about to be made."""
        again = self._replay.step
        may_be = self._allowance.next_step() and again is not None and again.is_repeatable
        self._armed = may_be and not self._lost
        self._judging.write_limits(monitor, second_level=self._armed)

    def after(self, monitor: Monitor, *, refused: bool) -> Look | None:
        """Makes a step whose update was refused once more, if that is due; in data parallel a call of all ranks.

        Returns:
            What is to be judged; None if the readings are still in the slots.
        """
        armed, self._armed = self._armed, False
        return self._look(monitor, armed=armed) if refused and self.wanted else None

    def _look(self, monitor: Monitor, *, armed: bool) -> Look:
        judging, again, scale = self._judging, self._replay.step, self._judging.scale
        first = self._read()
        try:
            told = judging.ranks.tell(
                obstacle=again.obstacle_for_good() if armed and again is not None else _NOT_ARMED,
                # A dynamic loss scale finds its value by overflowing: that step is to be lost.
                overflow=judging.loss_scale.dynamic and scale > 1 and any(each.non_finite for each in first.readings),
                broken=any(monitor.is_broken(each, scale) for each in first.readings if each.kind != SAMPLE),
                suspicious=any(monitor.suspicion(each, scale) is not None for each in first.readings),
            )
            judging.write_limits(monitor, scale=scale)
            if any(rank["overflow"] for rank in told) or not any(rank["suspicious"] for rank in told):
                return first
            reasons = [rank["obstacle"] for rank in told if rank["obstacle"]]
            if again is not None and not reasons:
                self._allowance.spend()
                self._checksums.make_all_due()
                outputs, failure = again.make_anew()
                second = self._read()
                reasons = [rank["failure"] for rank in judging.ranks.tell(failure=failure) if rank["failure"]]
                if not reasons:
                    return self._compare(monitor, first, second._replace(again=True, outputs=outputs), scale)
        except RankLostError:  # the exchange keeps it, which ends the step
            return first
        if any(rank["broken"] for rank in told):
            return first
        self._lost = True
        return first._replace(lost=reasons[0])

    def _compare(self, monitor: Monitor, first: Look, second: Look, scale: float) -> Look:
        gone = vanished(first.readings, second.readings, lambda each: monitor.suspicion(each, scale) is not None)
        elsewhere, attribution = self._whose(gone)
        captures = first.captures if gone else second.captures
        return second._replace(captures=captures, vanished=gone, elsewhere=elsewhere, attribution=attribution)

    def _read(self) -> Look:
        sites = self._judging.sites
        captures = table().captures(sites)
        return Look(table().read(sites, self._judging.gate), captures)

    def verdict(self, monitor: Monitor, events: Sequence[Event]) -> list[Event]:
        """Reports what a first-level anomaly is that a second run did not show again."""
        anomaly = next((event for event in events if event.kind == "anomaly" and event.refused), None)
        if anomaly is None:
            return []
        event = replace(
            anomaly, kind="replay", verdict="transient", time=monitor.clock(),
            reason="within its limits when the same step was made again",
        )  # fmt: skip
        monitor.publish(event)
        return [event]

    def _whose(self, gone: Sequence[Reading]) -> tuple[bool, Attribution | None]:
        """Whether any rank has suspicious values that did not come again, and which ranks have some of their own."""
        own = next((reading.checkpoint for reading in gone if reading.kind not in OF_ALL_RANKS), "")
        mean = next((reading.checkpoint for reading in gone if reading.kind in OF_ALL_RANKS), "")
        told = self._judging.ranks.tell(own=own, mean=mean)
        if self._judging.ranks.size == 1:
            return bool(gone), None
        found = blame([(words["own"], words["mean"]) for words in told])
        return found is not None, found

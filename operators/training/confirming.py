"""A second look: a suspicious step is made again before its update is applied.

The gate gets second-level limits for a step that can be made again. If it refuses the update, all ranks make the step
once more, with the limits of the first level: that run is the step. See `asd.confirmation` for what is made of the two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from asd.attribution import Attribution
from asd.config import Config
from asd.confirmation import Allowance, vanished
from asd.event import Event
from asd.monitor import Monitor
from asd.operators.slots import table
from asd.operators.training.judging import Judging, Look
from asd.operators.training.step_replay import StepReplay
from asd.reading import AVERAGED, Reading

__all__ = ["Confirming"]


class Confirming:
    """Of one `StepMonitor`.

    Args:
        config: How many steps may be made again.
        judging: Has the checkpoints and the loss scale.
        replay: Knows the step.
    """

    def __init__(self, config: Config, judging: Judging, replay: StepReplay) -> None:
        self.wanted = config.confirm > 0
        self._allowance = Allowance(config.confirm)
        self._judging, self._replay = judging, replay
        self._armed = False

    def prepare(self, monitor: Monitor, step: int) -> None:
        """Gives the gate second-level limits for `step`, which is about to be made and was remembered."""
        again = self._replay.step
        self._armed = again is not None and again.is_repeatable and self._allowance.left(step)
        if self._armed:
            self._judging.write_limits(monitor, second_level=True)

    def look(self, monitor: Monitor) -> Look:
        """Makes the step, whose update was refused, once more, if that is due; in data parallel a call of all ranks."""
        judging, again, scale = self._judging, self._replay.step, self._judging.scale
        armed, self._armed = self._armed, False
        first = self._read()
        told = self._tell(
            armed=armed,
            obstacle=again.obstacle() if armed and again is not None else "",
            # A dynamic loss scale finds its value by overflowing: that step is to be lost.
            overflow=judging.loss_scale.dynamic and scale > 1 and any(each.non_finite for each in first.readings),
            suspicious=any(monitor.suspicion(reading, scale) is not None for reading in first.readings),
        )
        judging.write_limits(monitor, scale=scale)
        due = all(rank["armed"] and not rank["overflow"] for rank in told) and any(rank["suspicious"] for rank in told)
        if not due:
            return first
        reasons = [rank["obstacle"] for rank in told if rank["obstacle"]]
        if not reasons and again is not None:
            self._allowance.spend()
            failure = again.make_anew()
            reasons = [rank["failure"] for rank in self._tell(failure=failure) if rank["failure"]]
        if reasons:
            monitor.problem(f"the update of a suspicious step is lost, for the step can't be made again: {reasons[0]}")
            return first
        second = self._read()
        gone = vanished(first.readings, second.readings, lambda reading: monitor.suspicion(reading, scale) is not None)
        elsewhere, attribution = self._whose(gone)
        captures = first.captures if gone else second.captures
        return Look(second.readings, captures, True, gone, elsewhere, attribution)

    def _read(self) -> Look:
        sites = self._judging.sites
        captures = table().captures(sites)
        return Look(table().read(sites), captures)

    def verdict(self, monitor: Monitor, events: Sequence[Event]) -> list[Event]:
        """Reports what a first-level anomaly is that a second run did not show again."""
        anomaly = next((event for event in events if event.kind == "anomaly" and event.refused), None)
        if anomaly is None:
            return []
        event = replace(
            anomaly, kind="replay", verdict="transient", reason="within its limits when the same step was made again"
        )
        monitor.publish(event)
        return [event]

    def _whose(self, gone: Sequence[Reading]) -> tuple[bool, Attribution | None]:
        """Whether any rank has suspicious values that did not come again, and which ranks have some of their own."""
        own = next((reading.checkpoint for reading in gone if reading.kind != AVERAGED), "")
        told = self._tell(gone=bool(gone), own=own)
        guilty = [rank for rank, words in enumerate(told) if words["own"]]
        if not any(words["gone"] for words in told) or self._judging.ranks.size == 1:
            return bool(gone), None
        if not guilty:
            return True, Attribution(None, "", (), "no gradient of a rank was suspicious")
        names = ", ".join(f"rank {rank} at {told[rank]['own']}" for rank in guilty)
        origin = guilty[0] if len(guilty) == 1 else None
        followers = tuple(rank for rank in guilty if rank != origin)
        return True, Attribution(origin, told[guilty[0]]["own"], followers, f"what was suspicious is gone on {names}")

    def _tell(self, **words: Any) -> list[dict[str, Any]]:
        return [json.loads(message) for message in self._judging.ranks.gather(json.dumps(words).encode())]

"""Judges the weights and the optimizer's state by their bounds, after a step."""

from __future__ import annotations

import time

from mindspore import nn

from asd.operators.gate.part import Part, StepRecord
from asd.operators.measure.optimizer_state import OptimizerState
from asd.operators.measure.state_reading import StateReading
from asd.rules.step.protections import Protections
from asd.rundir.manifest import Health

__all__ = ["StateChecks"]

_SETTING = "ASD_OPTIONS=tiers:state"


class StateChecks(Part):
    """The checks of the state of one `StepMonitor`; until `watch` is called there is nothing to judge.

    Args:
        health: What is found is added to it.

    Attributes:
        seconds_in_step: What reading took in the last step that was judged.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._state: OptimizerState | None = None
        self._reading: StateReading
        self.seconds_in_step = 0.0

    def watch(self, optimizer: nn.Cell) -> None:
        """Reads the weights and the state of `optimizer` from now on."""
        self._state = OptimizerState(optimizer)
        self._reading = StateReading(self._state)

    @property
    def watches(self) -> bool:
        """Whether there is anything to judge."""
        return self._state is not None

    def tell(self, found: Protections) -> None:
        """Says what of the state is judged."""
        if self._state is None:
            return
        moments = ", ".join(self._state.moments) or "no moments were found"
        found.has(state=f"bounds on weights, {moments}")
        if self._state.unknown:
            names = ", ".join(self._state.unknown)
            found.lacks(_SETTING, f"what the optimizer keeps under names that are no weight's is not read: {names}")

    def judge(self, step: StepRecord) -> None:
        """Adds the event of a first-level anomaly after a step whose update was applied."""
        state, self.seconds_in_step = self._state, 0.0
        if state is None or step.refused:
            return
        state.note(step.readings or ())
        if not self._reading.due(step.number):
            return
        begin = time.perf_counter()
        values, growth = self._reading.read()
        self.seconds_in_step = time.perf_counter() - begin
        found = self.monitor.judge_state(step.number, values, self._reading.where, growth)
        if found is not None:
            step.events.append(found)
            step.fatal = step.fatal or found
            self._health.add(found)

    def pace(self, seconds: float) -> float:
        """Has reading take so many seconds of each step; returns which share of the state is read in one."""
        self._reading.pace(seconds)
        return self._reading.coverage

    @property
    def price(self) -> float:
        """The seconds it would take to read all of the state in each step; 0 where nothing is read."""
        return self._reading.price() if self._state is not None else 0.0

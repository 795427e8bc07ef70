"""Judges weights and optimizer state by their bounds, after a step."""

from mindspore import nn

from asd.errors import and_more
from asd.judge.protections import Protections
from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.private.mended import mend_files, take_loaded
from asd.operators.sensors.optimizer_state import FLOATS, OptimizerState
from asd.operators.sensors.state_reading import EVERY, StateReading
from asd.rundir.manifest import Health

_SETTING = "ASD_OPTIONS=detectors:state"


class StateChecks(Part):
    """Checks of the state of one `StepMonitor`; nothing is judged until `watch` is called."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._state: OptimizerState | None = None
        self._reading: StateReading
        self._last = 0

    def watch(self, optimizer: nn.Cell, net: nn.Cell | None) -> None:
        """Starts to read the weights and the state of `optimizer`, and the untrained Parameters of `net`."""
        self._state = OptimizerState(optimizer)
        own = {id(each) for each in (*self._state.parameters, *optimizer.get_parameters())}
        held = [] if net is None else net.get_parameters()
        self._reading = StateReading(
            self._state, [each for each in held if id(each) not in own and each.dtype in FLOATS]
        )
        self._last = 0
        mend_files()
        take_loaded(self._state.parameters)

    @property
    def watches(self) -> bool:
        """Returns whether there is state to judge."""
        return self._state is not None

    def tell(self, found: Protections) -> None:
        """Reports which parts of the state are judged."""
        if self._state is None:
            return
        moments = ", ".join(self._state.moments) or "no moments were found"
        found.has(state=f"bounds on weights, {moments}")
        if names := ", ".join(name for name in self._state.unknown if "learning_rate" not in name):
            found.lacks(_SETTING, f"state of the optimizer whose names belong to no weight is not read: {names}")

    def name_not_finite(self) -> None:
        """Reports values that are not finite after the first step, as from a file; before, weights may be unsharded."""
        if self._state is not None and (broken := self._reading.not_finite()):
            self.monitor.problem(f"not finite after the first step: {and_more(broken)}")

    def judge(self, step: StepRecord) -> None:
        """Adds the event of a first-level anomaly, after a step whose update was applied."""
        state = self._state
        if state is None or step.refused:
            return
        state.note(step.readings or ())
        if step.number % EVERY:
            return
        steps = step.number - self._last if 0 < self._last < step.number else EVERY
        self._last = step.number
        values, growth = self._reading.read()
        if take_loaded(state.parameters):  # by the user: earlier values are no reference for it
            self.monitor.judges.forget_state()
        found = self.monitor.judge_state(step.number, values, self._reading.where, growth, steps=steps)
        if found is not None:
            step.events.append(found)
            step.fatal = step.fatal or found
            self._health.add(found)

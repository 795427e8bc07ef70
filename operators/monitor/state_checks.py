"""Judges weights and optimizer state by their bounds, after a step."""

import weakref

import mindspore as ms
from mindspore import nn

from asd.errors import and_more
from asd.judge.detectors import Tensors
from asd.judge.protections import Off, Protections
from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.private.boundary import shielded
from asd.operators.private.mended import mend_files, take_loaded
from asd.operators.ranks.memory_sums import Damage, MemorySums
from asd.operators.sensors.optimizer_state import FLOATS, OptimizerState
from asd.operators.sensors.state_reading import EVERY, StateReading
from asd.operators.sensors.update_reading import UpdateReading
from asd.rules.state_bound import UPDATE
from asd.rundir.manifest import Health
from asd.verdict import Level

_SETTING = "ASD_OPTIONS=detectors:state"


class StateChecks(Part):
    """Checks of the state of one `StepMonitor`; nothing is judged until `watch` is called."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._state: OptimizerState | None = None
        self._reading: StateReading
        self._updates, self._memory = UpdateReading(()), MemorySums()
        self._is_asked, self._damage = False, list[Damage]()
        self._unsealed = self._seen = 0  # calls since memory was summed; the step that was judged last
        self._last, self._most = 0, 0.0  # step of the last reading; the largest change since then

    def watch(self, optimizer: nn.Cell, net: nn.Cell | None) -> None:
        """Starts to read the weights and the state of `optimizer`, and the untrained Parameters of `net`."""
        self._state = OptimizerState(optimizer)
        own = {id(each) for each in (*self._state.parameters, *optimizer.get_parameters())}
        held = [] if net is None else net.get_parameters()
        untrained = [each for each in held if id(each) not in own and each.dtype in FLOATS]
        self._reading = StateReading(self._state, untrained)
        self._updates = UpdateReading(self._state.weights)
        self._memory = MemorySums(self._state.parameters, heals=self.monitor.config.refuses)
        self._is_asked, self._damage = False, []
        self._state.note((), 1)  # a resumed bound is of an earlier step, and what was added since is not known
        self._state.read_rate()
        self._last, self._most = 0, 0.0
        in_python = ms.get_context("mode") == ms.PYNATIVE_MODE
        self.gate.before_update = weakref.WeakMethod(self.keep) if in_python else None
        mend_files()
        take_loaded(self._state.parameters)

    @property
    def watches(self) -> bool:
        """Returns whether there is state to judge."""
        return self._state is not None

    @shielded
    def keep(self) -> bool:
        """Compares memory with what the last update left, and copies weights; returns whether to re-run the step."""
        self._is_asked, damage = True, None
        if not self.table.replaying:
            damage = self._memory.damage()
            self._damage += [damage] if damage is not None else []
            self._updates.keep()
        return damage is not None and damage.healed and self.gate.second_level

    @shielded
    def seal(self, *, updated: bool) -> None:
        """Notes what some memory holds until the next update, at the end of a step."""
        self._unsealed = (self._unsealed + 1) % self._memory.every
        if self._is_asked and not self._unsealed and self._memory.seal(updated=updated):
            self._tell_memory()

    def measure(self) -> bool:
        """Has what the update changed read with the slots; returns whether there is anything."""
        sizes = self._updates.measure()
        if sizes is not None:
            self.table.carry(sizes, self._updates.take)
        return sizes is not None

    def tell(self, found: Protections) -> None:
        """Reports which parts of the state are judged."""
        if self._state is None:
            return
        moments = ", ".join(self._state.moments) or "no moments were found"
        found.has(state=f"bounds on each weight, {moments}, and on what updates change")
        if self._memory.turns:
            self._tell_memory()
        if names := ", ".join(name for name in self._state.unknown if "learning_rate" not in name):
            found.lacks(_SETTING, f"state of the optimizer whose names belong to no weight is not read: {names}")

    def _tell_memory(self) -> None:
        memory, until = self._memory, "update" if ms.get_context("mode") == ms.PYNATIVE_MODE else "step"
        share, steps = 100 * memory.share / memory.every, memory.turns * memory.every
        covered = f"sums of {share:.3g} % of weights and moments in a step, all within {steps} steps"
        self.monitor.has(memory=f"{covered}, from an update to the next {until}")

    def report_first_step(self) -> None:
        """Reports whether memory is compared, and values that are not finite, as from a file.

        Before the first step weights may be unsharded.
        """
        if self._memory.turns and not self._is_asked:
            self.monitor.protections.has(memory=Off("the step is not declared, or the optimizer is not guarded"))
        if self._state is not None and (broken := self._reading.not_finite()):
            self.monitor.problem(f"not finite after the first step: {and_more(broken)}")

    def judge(self, step: StepRecord) -> None:
        """Adds the event of a first-level anomaly, after a step whose update was applied."""
        damages, self._damage = self._damage, []
        for each in damages:
            self.monitor.status.healed += each.healed
            words = {"rule": "memory", "where": each.name, "reason": each.reason}
            self.accuse(step, self._health, **words, wrong=1, healed=each.healed)
        state, changes = self._state, self._updates.changes()
        if state is None or step.refused:
            return
        if self.gate.updates:
            state.note(step.readings or (), self.gate.updates)
        if changes:
            self._judge_changes(step, state, changes)
        last, self._seen = self._seen or step.number - 1, step.number
        if step.number // EVERY <= min(last, step.number - 1) // EVERY:  # a call with sunk data makes many steps
            return
        steps = step.number - self._last if 0 < self._last < step.number else EVERY
        self._last = step.number
        found, self._most = self._reading.read(steps, self._most), 0.0
        state.read_rate()
        if take_loaded(state.parameters):  # by the user: earlier values are no reference for it
            self.monitor.judges.forget_state()
        self._judge(step, found, steps)

    def _judge_changes(self, step: StepRecord, state: OptimizerState, changes: dict[int, float]) -> None:
        if any(value > state.most(i) for i, value in changes.items()):
            state.read_rate()  # the program may have changed it
        self._most = max(self._most, *changes.values())
        names = {i: f"update.{state.names[id(state.weights[i])]}" for i in changes}
        self._judge(step, {names[i]: ({UPDATE: value}, {UPDATE: state.most(i)}) for i, value in changes.items()}, EVERY)

    def _judge(self, step: StepRecord, values: Tensors, steps: int) -> None:
        found = self.monitor.judge_state(step.number, values, steps=steps)
        if found is not None:
            step.events.append(found)
            step.fatal = step.fatal or (found if found.level is Level.ERROR else None)
            self._health.add(found)

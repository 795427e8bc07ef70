"""Judges the weights and the optimizer's state: their bounds after a step, and that nothing changes between two."""

from __future__ import annotations

import time

from mindspore import nn

from asd.event import Event
from asd.operators.gate.part import Part, StepRecord
from asd.operators.gate.problems import Problems
from asd.operators.kernel.samples import GateSamples
from asd.operators.kernel.seal import GateSeal
from asd.operators.measure.state.blocks import StateBlocks
from asd.operators.measure.state.extremes import StateExtremes
from asd.operators.measure.state.optimizer_state import OptimizerState
from asd.operators.measure.state.seal import StateSeal
from asd.operators.measure.state.snapshot import Snapshot, StateReader
from asd.operators.measure.state.tensors import StateTensors
from asd.operators.measure.state.updates import StateUpdates
from asd.operators.table.slots import by_backend
from asd.rules.step.protections import Protections
from asd.rundir.checkpoint_health import Health

__all__ = ["StateChecks"]

_SETTING = "ASD_OPTIONS=tiers:state"
_AGAIN = "a sample of updates computed again"
_NOT_AGAIN = "updates not computed again (known are Adam, AdamWeightDecay, Momentum and SGD of float32 weights)"
_NOT_AS_EXPECTED = "updates are not computed again: this optimizer does something else than its name says"
_WARM = 20
"""Steps in which the optimizer's state is read each time, for it grows quickly."""


class StateChecks(Part):
    """Those of one `StepMonitor`; until `watch` is called there is nothing to judge.

    Args:
        health: What is found between two steps is added to it.
        problems: A failure of the checks themselves is told once.

    Attributes:
        seal: What compares a step's end with the beginning of the next; None where nothing does.
        seconds_in_step: What reading took in the last step that was judged.
    """

    def __init__(self, health: Health, problems: Problems) -> None:
        self._health, self._problems = health, problems
        self._state: OptimizerState | None = None
        self._reader: StateReader
        self._extremes: StateExtremes
        self.seal: StateSeal | None = None
        self._left: Snapshot | None = None
        self.seconds_in_step = 0.0
        self._steps = 0
        self._updates: StateUpdates | None = None

    def watch(self, optimizer: nn.Cell) -> None:
        """Reads the weights and the state of `optimizer` from now on."""
        self._state = state = OptimizerState(optimizer)
        self._extremes, self._left, self._updates = StateExtremes(state), None, None
        self._reader, self.seal = by_backend(
            kernel=lambda _: self._sealed(state, optimizer), operators=lambda _: (StateTensors(state), None)
        )

    @property
    def watches(self) -> bool:
        """Whether there is anything to judge."""
        return self._state is not None

    def tell(self, found: Protections, *, after_first_step: bool = False) -> None:
        """Says what of the state is judged; after the first step also whether its beginning is seen."""
        if self._state is None:
            return
        moments = ", ".join(self._state.moments) or "no moments were found"
        hashed = self.seal is not None and (self.seal.watched or not after_first_step)
        again = hashed and self._updates is not None and self._updates.known
        words = f", hashes between updates, {_AGAIN if again else _NOT_AGAIN}" if hashed else ""
        found.has(state=f"bounds on weights, {moments}{words}")
        if self._state.unknown:
            names = ", ".join(self._state.unknown)
            found.lacks(_SETTING, f"what the optimizer keeps under names that are no weight's is not read: {names}")
        if self._reader.unread:
            names = ", ".join(self._reader.unread)
            found.lacks(_SETTING, f"what does not lie in one piece in this process's memory is not read: {names}")
        if self.seal is None:
            found.lacks(_SETTING, "nothing is compared between two steps without the C++ kernel on a CPU")
        elif not hashed:
            reason = "this loop does not show where a step begins: call it through StepMonitor.watch_step"
            found.lacks(_SETTING, f"nothing is compared between two steps: {reason}")

    def _sealed(self, state: OptimizerState, optimizer: nn.Cell) -> tuple[StateReader, StateSeal]:
        # On a device the weights would have to be copied to the host twice.
        reader, guard = StateBlocks(state), getattr(optimizer, "asd_gate", None)
        gate = GateSeal(guard.guard_number) if guard is not None else None
        if guard is not None:
            self._updates = StateUpdates(optimizer, state, GateSamples(guard.guard_number))
        seal = StateSeal(reader, state.parameters, gate, lambda name: self.monitor.judges.seal_judges(name))
        if guard is not None:
            guard.before_asking = seal.leave_out_written
        return reader, seal

    def find_broken(self, step: StepRecord) -> None:
        """Adds the event of a weight or a state that the gate found changed before the update of this step."""
        try:
            found = self.seal.at_gate() if self.seal is not None else None
            if found is None:
                return
            step.broken = found.broken
            event = self.monitor.judge_seal(*found[:4], refused=found.broken and step.refused)
        except Exception as error:  # as in `StepMonitor.step`
            self._problems.once(f"what the gate found of the weights is not known: {error!r}")
            return
        if found.after and self._updates is not None:
            self._updates.drop()
        if event is not None:
            step.events.append(event)
            step.fatal = event
            self._health.add(event)

    def judge(self, step: StepRecord) -> None:
        """Adds the event of a first-level anomaly after a step whose update was applied."""
        state, self._left = self._state, None
        if state is None or step.refused:
            return
        self._check_update(step)
        state.note(step.readings or ())
        self.seconds_in_step = 0.0
        self._steps += 1
        if not self._reader.due(step.number):
            return
        begin = time.perf_counter()
        self._left = self._reader.read(step.number)
        self.seconds_in_step = time.perf_counter() - begin
        values, growth = self._extremes.take(self._left, self._reader.tensor_of)
        found = self.monitor.judge_state(step.number, values, self._extremes.where, growth)
        if found is not None:
            step.events.append(found)
            step.fatal = step.fatal or found
            self._health.add(found)

    def pace(self, seconds: float) -> float:
        """Has reading take so many seconds of each step; returns which share of the state is read in one."""
        if self._steps >= _WARM:
            self._reader.pace(seconds)
        return self._reader.coverage

    @property
    def price(self) -> float:
        """The seconds it would take to read all of the state in each step; 0 where nothing is read."""
        return self._reader.price() if self._state is not None else 0.0

    def _check_update(self, step: StepRecord) -> None:
        updates, seal = self._updates, self.seal
        if updates is None or seal is None or not updates.known:
            return
        if not seal.is_left_alone:
            updates.drop()
        try:
            found = updates.check()
        except Exception as error:  # as in `StepMonitor.step`
            self._problems.once(f"an update was not computed again: {error!r}")
            return
        if found is not None:
            event = self.monitor.publish(self.monitor.reports.wrong_update(step.number, *found))
            step.events.append(event)
            step.fatal = step.fatal or event
            self._health.add(event)
        if not updates.known:
            self.monitor.protections.lacks(_SETTING, _NOT_AS_EXPECTED)

    def close(self, step: StepRecord) -> None:
        """Keeps hashes of the weights and the optimizer's state that a step left."""
        if self.seal is None:
            return
        begin = time.perf_counter()
        try:
            self.seal.close(step.number, self._left)
            if self._updates is not None and self._updates.known:
                self._updates.begin(step.number)
        except Exception as error:  # as in `StepMonitor.step`
            self._problems.once(f"weights were not hashed: {error!r}")
        self.monitor.status.check_seconds += time.perf_counter() - begin

    def open(self, *, look: bool = False) -> Event | None:
        """The event of a weight or a state that changed since the last step ended.

        Args:
            look: Whether to look at once; else the gate does before the next update, where it can.
        """
        if self.seal is None or self.table.replaying:
            return None
        begin = time.perf_counter()
        try:
            both = self.seal.open(look=look)
            found = self.monitor.judge_seal(*both[:4]) if both is not None else None
            if both is not None and (both.traced or both.after) and self._updates is not None:
                self._updates.drop()
        except Exception as error:  # as in `StepMonitor.step`
            self._problems.once(f"weights were not compared with those of the last step: {error!r}")
            return None
        self.monitor.status.check_seconds += time.perf_counter() - begin
        if found is not None:
            self._health.add(found)
        return found

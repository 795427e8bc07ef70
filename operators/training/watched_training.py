"""What happens around each step of a training, and in which order: the parts of `StepMonitor` and their turns."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mindspore import Tensor, nn

from asd.checkpoint_health import Health
from asd.config import Config
from asd.delivery import Sink
from asd.errors import RankLostError, UnsupportedError
from asd.event import Event
from asd.monitor import Monitor
from asd.operators.checksum import Checksum
from asd.operators.exchange import Exchange
from asd.operators.loss_scale import LossScale
from asd.operators.origin import origin_of_process
from asd.operators.repeatable_step import Step
from asd.operators.resume import CheckpointWatch, resumed_step
from asd.operators.slots import table
from asd.operators.training.checks import Checks
from asd.operators.training.checksum_plan import ChecksumPlan
from asd.operators.training.confirming import Confirming
from asd.operators.training.ending import Ending
from asd.operators.training.forgotten import Forgotten
from asd.operators.training.judging import Judging
from asd.operators.training.problems import Problems
from asd.operators.training.protecting import after_first_step, before_first_step
from asd.operators.training.rule_state import RuleState
from asd.operators.training.state_checks import StateChecks
from asd.operators.training.step_replay import StepReplay
from asd.operators.training.weight_watch import WeightWatch
from asd.sinks import open_sinks

__all__ = ["WatchedTraining"]


class WatchedTraining:
    """The trainings of one `StepMonitor`, one after the other; it takes the same arguments.

    Attributes:
        monitor: What judges; None before `attach`.
        health: What the steps since the last checkpoint came to.
        judging: Reads the slots and writes the limits.
        state: Judges the weights and the optimizer's state.
        outputs_again: What the last step returned when it was made again for good; None where it was not.
    """

    def __init__(
        self,
        config: Config,
        *,
        loss_scale: Any,
        include: str | Iterable[str],
        exclude: str | Iterable[str],
        sinks: Sequence[Sink] | None,
        resume_from: str | Path | None,
        history: int,
        replay: bool | None,
        checksum: bool | Checksum | None,
    ) -> None:
        self.config = config
        self.monitor: Monitor | None = None
        self.outputs_again: Any = None
        self.health = Health()
        problems = Problems()
        self.state = StateChecks(self.health, problems)
        self.judging = Judging(config, loss_scale, self.state, self.health, problems)
        self._problems = problems
        self._find_loss_scale = loss_scale is None
        self._checksums = ChecksumPlan(config, checksum)
        self._checks = Checks(config, include, exclude, self._checksums)
        self._weights = WeightWatch(self.health)
        self._replay = StepReplay(config, wanted=config.replay if replay is None else replay, scaler=loss_scale)
        self._confirming = Confirming(config, self.judging, self._replay, self._checksums)
        self._rule_state = RuleState(config, self.health, resume_from)
        self._ending = Ending(config)
        self._forgotten = Forgotten(self.judging, problems)
        weakref.finalize(self, self._forgotten.look, ended=True).atexit = False  # when the process ends, it is told
        self._is_callback = False
        self._sinks, self._history = sinks, history
        self._optimizer: nn.Cell | None = None
        self._step = 0
        self._is_first, self._net = True, None
        self._last_end: float | None = None

    def look_at(self, train_network: nn.Cell, callbacks: Any) -> None:
        """Finds out what MindSpore knows about a training before it begins: loss scale, checkpoints, roll-back."""
        self._is_callback = True
        if self._find_loss_scale:
            self.judging.loss_scale = LossScale.of(train_network)
        self._rule_state.files = CheckpointWatch(callbacks or ())
        self._ending.look_for_roll_back(getattr(callbacks, "_callbacks", None) or callbacks or ())

    def attach(self, net: nn.Cell | None, optimizer: nn.Cell | None, reducer: nn.Cell | None = None) -> None:
        """See `StepMonitor.attach`."""
        goes_on = self.monitor is not None and optimizer is self._optimizer
        if self.monitor is None or not goes_on:
            origin = origin_of_process(self.config)
            sinks = self._sinks if self._sinks is not None else open_sinks(self.config, origin)
            self.monitor = Monitor(self.config, origin, sinks, value_sink=_value_sink(sinks), history=self._history)
            _end_at_exit(self.monitor)
            self._optimizer = optimizer
            self._step = resumed_step(optimizer)
        monitor, judging = self.monitor, self.judging
        monitor.protections.begin()
        gate = judging.own_gate(self)
        self._checks.put_on(net, optimizer, monitor, gate)
        judging.ranks = Exchange()
        weights = net.trainable_params() if net is not None else getattr(optimizer, "parameters", ())
        self._weights.watch(weights, judging.ranks, self.config.weight_hash, gate)
        if optimizer is not None:
            self._checks.put_around(optimizer, net, reducer, monitor, gate)
            self._watch(optimizer, net)
        self._checks.tell_apart(net, gate)
        self._rule_state.label = gate.label or ""
        if not goes_on and self._rule_state.resume(monitor, judging.sites, optimizer):
            self._step = monitor.step
        if net is not None:
            table().read(judging.sites, gate)  # what another training left there
        table().arm(self.config.refuses, gate)
        table().keep(self.config.evidence_mb << 20, gate)
        judging.begin(monitor)
        self._checksums.schedule(monitor, self._step + 1, suspicious=False)
        self._is_first, self._net = True, net
        before_first_step(monitor, self.config, optimizer, judging.sites, judging.ranks.size)
        monitor.protections.has(checksum=self._checksums.words, weight_comparison=self._weights.words)
        self.state.tell(monitor.protections)
        self._replay.tell(monitor)
        monitor.tell_protections(all_of_them=True)
        monitor.begin()
        if not self._is_callback:  # then MindSpore calls `step`
            self._forgotten.watch(monitor)

    def _watch(self, optimizer: nn.Cell, net: nn.Cell | None) -> None:
        if self.config.refuses:
            self._replay.watch(net, optimizer, self.judging.sites, self.judging.ranks)
        if "state" in self.config.active_tiers:
            self.state.watch(optimizer)

    def step(self, outputs: Any) -> list[Event]:
        """See `StepMonitor.step`."""
        monitor = self.monitor
        if monitor is None or table().replaying:
            return []
        self._forgotten.called()
        self._step += 1
        self.outputs_again = None
        _wait(outputs if outputs is not None else getattr(self._optimizer, "global_step", None))
        begin = time.perf_counter()
        refused, scale = self.judging.refused(), self.judging.scale
        events: list[Event] = []
        fatal = None
        try:
            look = self._confirming.after(monitor, refused=refused > 0)
            if look is not None and look.again:
                refused = self.judging.refused()
                outputs = self.outputs_again = look.outputs
                look = look.of_refused() if refused else look
            events, fatal = self.judging.judge(monitor, self._step, refused=refused > 0, look=look)
            if look is not None and look.vanished and not refused:
                events += self._confirming.verdict(monitor, events)
        except Exception as error:  # whatever it is: the detector's own failure must not end a training
            self._problems.once(monitor, f"a step was not judged: {error!r}")
        finally:
            self._count_time(monitor, begin, time.perf_counter())
        self._tell_after_first(monitor)
        try:
            damage = self._weights.after(monitor, self._step)
            if damage is not None:
                events.append(damage)
            if refused and self._replay.wanted:
                events += self._replay.judge(monitor, self._step, outputs, fatal, scale)
                self._last_end = time.perf_counter()  # what a replay takes is no part of a step
                table().seconds()
            self._checksums.after(monitor, self._step, events, self.judging.ranks)
        except RankLostError as error:
            monitor.problem(str(error))
            self.end(fatal)  # an anomaly of this step is the better reason
            self.close()
            raise
        self._replay.forget()
        self.judging.drop_strays()  # of what was made again
        self.end(fatal, damage)
        self.state.close(monitor, self._step)
        return events

    def _tell_after_first(self, monitor: Monitor) -> None:
        if not self._is_first:
            return
        self._is_first = False
        try:
            after_first_step(monitor, self._net, self.judging.sites)
            self.state.tell(monitor.protections, after_first_step=True)
            self._replay.tell(monitor, after_first_step=True)
        except Exception as error:  # as in `step`
            monitor.problem(f"what protects the training is not known: {error!r}")
        monitor.tell_protections()

    def open_seal(self) -> Event | None:
        """The event of a weight or a state that changed since the last step ended."""
        return self.state.open(self.monitor) if self.monitor is not None else None

    def remember(self, step: Step) -> None:
        """Says that `step` comes next."""
        self._replay.remember(step)
        if self.monitor is not None and self._confirming.wanted:
            self._confirming.prepare(self.monitor)

    def end(self, fatal: Event | None, damage: Event | None = None) -> None:
        """Ends the training because of an event, if the settings say so.

        Raises:
            AnomalyDetected: They do; a `TrainingResultError` where MindSpore can roll the training back.
        """
        reason = self._ending.after(self._step, fatal, damage)
        if reason is not None:
            self.close()
            raise reason

    def close(self) -> None:
        """See `StepMonitor.close`."""
        self._forgotten.look(ended=True)
        self._forgotten.stop()
        gate = self.judging.gate
        if gate is not None:
            gate.active = False
            table().arm(False, gate)
            table().keep(0, gate)
        if self.monitor is not None:
            self.monitor.end()

    def follow_roll_back(self) -> None:
        """Takes over the rule state of the step to which MindSpore went back, if it was asked to go back."""
        if not self._ending.rolled_back:
            return
        monitor = self._active()
        if self._rule_state.follow_roll_back(monitor, self.judging.sites, resumed_step(self._optimizer)):
            self._step = monitor.step
            self.judging.write_limits(monitor)

    def save_state(self, file: Path) -> Path:
        """See `StepMonitor.save_state`."""
        path = self._rule_state.save(file, self._active(), self._optimizer, self._step)
        self._weights.wrote(file)
        return path

    def save_manifest(self, file: Path) -> None:
        """See `StepMonitor.save_manifest`."""
        self._rule_state.save_manifest(file, self._active(), self._optimizer, self._step)

    def save_new_states(self) -> None:
        """Saves what belongs beside each checkpoint file that was written since the last call."""
        if self.monitor is None:
            return
        for file in self._rule_state.files.new_files():
            try:
                self.save_state(file)
                if self.config.manifest:
                    self.save_manifest(file)
            except OSError as error:
                reason = f"what belongs beside {file} can't be written: {error.strerror or error}"
                self.monitor.problem(reason)

    def _count_time(self, monitor: Monitor, begin: float, end: float) -> None:
        """From the end of the last step to the end of this one; the first has no beginning that is known."""
        in_kernel = table().seconds()
        if self._last_end is not None:
            monitor.status.step_seconds += end - self._last_end
            monitor.status.check_seconds += end - begin + in_kernel
        self._last_end = end

    def _active(self) -> Monitor:
        if self.monitor is None:
            raise UnsupportedError("this StepMonitor is attached to no training yet: call attach first.")
        return self.monitor


def _end_at_exit(monitor: Monitor) -> None:
    """Says that the training has ended if its process does first: by an exception, by Ctrl-C, or because nobody did."""
    known = weakref.ref(monitor)

    def end() -> None:
        living = known()
        if living is not None and living.status.active and living.status.pid == os.getpid():
            living.end()

    atexit.register(end)


def _wait(outputs: Any) -> None:
    """Waits for the step by reading one of its outputs."""
    while isinstance(outputs, (tuple, list)) and outputs:
        outputs = outputs[0]
    if isinstance(outputs, Tensor):
        outputs.asnumpy()


def _value_sink(sinks: Sequence[Any]) -> Any:
    return next((sink.values for sink in sinks if hasattr(sink, "values")), None)

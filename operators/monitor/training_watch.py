"""Order of the work around each step of a training: the parts of `StepMonitor` and their turns."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import Parameter, nn

from asd.config import Config
from asd.errors import RankLostError, UnsupportedError
from asd.event import Event
from asd.judge.delivery import Sink
from asd.judge.monitor import Monitor
from asd.operators.gate.gate import Gate
from asd.operators.gate.slots import table
from asd.operators.gate.step_record import Part, Problems, StepRecord
from asd.operators.gate.table import Table
from asd.operators.monitor.accumulation import Accumulation
from asd.operators.monitor.ending import Ending
from asd.operators.monitor.forgotten import Forgotten
from asd.operators.monitor.protecting import after_first_step, before_first_step, tell_groups
from asd.operators.monitor.resume import CheckpointWatch, ends_before
from asd.operators.monitor.rule_state import RuleState
from asd.operators.monitor.state_checks import StateChecks
from asd.operators.monitor.step_reader import StepReader
from asd.operators.monitor.weight_watch import WeightWatch
from asd.operators.private.boundary import at_exit, shielded, wait_for_pynative
from asd.operators.private.cells import callbacks_in
from asd.operators.private.class_swap import put_on, take_off
from asd.operators.private.layout import remember_division
from asd.operators.private.names import find
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.origin import origin_of_process
from asd.operators.ranks.shards import find_groups, groups_of_layout
from asd.operators.rerun.audit import Audit
from asd.operators.rerun.probe import EVERY, Probe
from asd.operators.rerun.repeatable_step import Step
from asd.operators.rerun.rerun import Rerun
from asd.operators.rerun.step_tensors import tensors_in, to_host
from asd.operators.rerun.sunk import keep_batches, why_not_kept
from asd.operators.rerun.vendor import VendorTools
from asd.operators.sensors.all_checks import Checks
from asd.operators.sensors.loss_scale import LossScale
from asd.operators.sensors.optimizers import as_one, count_of, updates_of
from asd.operators.sensors.own_gradients import alike_on_ranks
from asd.operators.sensors.sampled.sampling import Sampling
from asd.rundir.manifest import Health
from asd.sinks import open_sinks

Turn = Callable[[StepRecord], None]


class Turns(NamedTuple):
    """Calls of the parts in a step, in this order; parts that are switched off have none."""

    judge: Sequence[Turn] = ()  # calls that turn slots into events; their failure is a problem and ends no training
    act: Sequence[Turn] = ()  # calls that act on the events; all ranks make them


class TrainingWatch:
    """The trainings of one `StepMonitor`, one after the other; it takes the same arguments.

    Attributes:
        monitor: Monitor that judges; None before `attach`.
        health: Health of the steps since the last checkpoint.
        judging: Reads the slots and writes the limits.
        state: Judges the weights and the optimizer's state.
        rerun: Re-runs a step, to confirm or to attribute.
        turns: Calls of the parts in a step, from `attach` on.
    """

    def __init__(
        self,
        config: Config,
        loss_scale: Any,
        include: str | Iterable[str],
        exclude: str | Iterable[str],
        sinks: Sequence[Sink] | None,
        resume_from: str | Path | None,
        history: int,
        *,
        replay: bool | None,
    ) -> None:
        self._given = config  # by its folder the ranks agree on a name of the run
        with contextlib.suppress(OSError):  # the working folder is gone, as the sinks will tell
            config = replace(config, run_dir=str(Path(config.run_dir).absolute()))  # a callback may change the folder
        self.config = config
        self.monitor: Monitor | None = None
        self.health = Health()
        self._problems = Problems()
        self.state = StateChecks(self.health)
        self.judging = StepReader(config, loss_scale, self.health, self._problems)
        self._find_loss_scale = loss_scale is None
        self._checks = Checks(config, include, exclude)
        self._sampling = Sampling(config, exclude, self._problems)
        self._weights = WeightWatch(self.health)
        self._probe, self._vendor = Probe(self.health), VendorTools(self.health)
        write, again = self.judging.write_limits, self._sampling.check_again
        attributes, audit = config.replay if replay is None else replay, Audit(self.health, self._vendor)
        self.rerun = Rerun(
            config, loss_scale, audit, self._vendor, attributes=attributes, write_limits=write, check_again=again
        )
        self._accumulation = Accumulation(self.rerun.put_back_sums, write)
        self._rule_state = RuleState(config, self.health, resume_from)
        self._ending = Ending(config)
        self._forgotten = Forgotten(self._problems)
        self._parts = [self.rerun.audit, *(each for each in vars(self).values() if isinstance(each, Part))]
        self.turns = Turns()
        self.gate: Gate | None = None
        self._table: Table
        self._is_callback = self._clips = False
        self._sinks, self._history = sinks, history
        self._optimizer: nn.Cell | None = None
        self._step = 0
        self._made: StepRecord | None = None  # a declared step has run and is not judged yet
        self._looked = 0.0
        self._updates_in_run: int | None = None
        self._called: tuple[nn.Cell, type] | None = None  # with a layer, as long as `Model.train` runs
        self._fetcher: nn.Cell | None = None  # of sunk data
        self._sunk, self._steps_a_call = -1, 1
        self._is_first, self._net = True, None
        self._held: list[Parameter] = []
        self._last_end: float | None = None

    def look_at(self, train_network: nn.Cell, callbacks: Any, *, clips: bool = False, sunk: int = -1) -> None:
        """Collects the facts about a training before it begins: loss scale, checkpoints, roll-back.

        Args:
            train_network: The training cell.
            callbacks: All that are called.
            clips: Whether PyNative clips gradients, without a loss scale, before the optimizer gets them.
            sunk: Steps that a call makes with sunk data, 0 if unknown; negative where data are not sunk.
        """
        self._is_callback, self._clips = True, clips
        self._sunk, self._steps_a_call = sunk, max(1, sunk)
        self.rerun.sunk = self._steps_a_call if sunk >= 0 else 0
        if self._find_loss_scale:
            self.judging.loss_scale = LossScale.of(train_network)
        self._rule_state.files = CheckpointWatch(callbacks or ())
        self._ending.look_for_roll_back(callbacks_in(callbacks))

    def attach(self, net: nn.Cell | None, optimizer: Any, reducer: nn.Cell | None = None) -> None:
        """Puts checks on `net` and a guard around `optimizer`, and finds out what protects the training."""
        remember_division(net)  # before any question about the layout
        optimizer = as_one(optimizer, self._optimizer)
        goes_on = self._goes_on(optimizer)
        also = goes_on and self.gate in table().gates.others()  # as another cell with this optimizer
        if self.monitor is None or optimizer is not self._optimizer:
            origin = origin_of_process(self._given)
            sinks = self._sinks if self._sinks is not None else open_sinks(self.config, origin)
            values = next((sink.values for sink in sinks if hasattr(sink, "values")), None)
            self.monitor = Monitor(self.config, origin, sinks, value_sink=values, history=self._history)
            at_exit(self.monitor.end_with_process)
            self._optimizer = optimizer
        monitor, judging = self.monitor, self.judging
        monitor.protections.begin()
        gate, ranks = self._own_gate(), Exchange()
        monitor.alone = ranks.size == 1
        for part in self._parts:
            part.serve(monitor, self._table, gate, ranks)
        weights = alike_on_ranks(net, optimizer)
        alike = {name: getattr(self.config, name) for name in ("on_anomaly", "rule", "weight_hash")}
        ranks.divide(find_groups(ranks, weights, **alike, confirm=self.rerun.confirms, replay=self.rerun.attributes))
        self._checks.put_on(net, optimizer, also=also)
        self._weights.watch(weights, self.config.weight_hash)
        if optimizer is not None:
            self._checks.put_around(optimizer, net, reducer)
            self._watch(optimizer, net)
        if net is not None and self._clips:
            self._checks.look_in_backward_pass(net, optimizer)
        self._sampling.put_on(net)
        self._checks.tell_apart(net)
        self._rule_state.label = gate.label or ""
        if not goes_on:
            self._take_over(monitor, optimizer)
        self._sampling.begin_step(self._step + 1)
        if net is not None:
            self._table.read(gate.sites, gate)  # what another training left there
        self._table.arm(self.config.refuses, gate)
        judging.begin(optimizer if self._find_loss_scale else None)
        # Nothing reads the slots between two steps of a call, of which the scaler may skip the first.
        gate.leave_overflows(self._steps_a_call > 1 and judging.loss_scale.dynamic)
        self.turns = self._compose()
        self._is_first, self._net, self._held = True, net, weights
        self._made = None
        before_first_step(monitor, self.config, optimizer, gate.sites, ranks, net)
        monitor.protections.has(weight_comparison=self._weights.words)
        self.state.tell(monitor.protections)
        self.rerun.report_protection()
        monitor.tell_protections(all_of_them=True)
        monitor.begin()
        if not self._is_callback:  # then MindSpore calls `step`
            self._forgotten.watch()

    def _goes_on(self, optimizer: nn.Cell | None) -> bool:
        """Returns whether what it learned is of the optimizer's last update, which no other monitor judged."""
        if self.monitor is None or optimizer is not self._optimizer:
            return False
        is_judged = optimizer is None or self.gate in table().gates.others()
        return is_judged or count_of(optimizer) in (None, self.monitor.updates)

    def _take_over(self, monitor: Monitor, optimizer: nn.Cell | None) -> None:
        """Loads the state of who judged last, or of earlier attempts, with the anomalies that ended these."""
        if self._rule_state.resume(optimizer):
            self._step = monitor.step
        else:
            self._step = max(monitor.step, updates_of(optimizer))
            monitor.judges.begin_anew()
            monitor.judges.forget_state()
        if self.config.rule == "adaptive" and not monitor.status.steps:  # else it made these anomalies itself
            monitor.know(ends_before(Path(self.config.run_dir), monitor.origin.rank), self._step)

    def _own_gate(self) -> Gate:
        """Returns the gate of this training, which is about to begin."""
        self._table = table()
        if self.gate is None or self.gate not in self._table.gates.living.values():
            self.gate = self._table.new_gate()
        self.gate.serve(self)
        return self.gate

    def _watch(self, optimizer: nn.Cell, net: nn.Cell | None) -> None:
        if self.config.refuses:
            self.rerun.watch(net, optimizer)
        if "state" in self.config.active_detectors:
            self.state.watch(optimizer, net)
            self._probe.watch(getattr(optimizer, "parameters", ()))
            self._vendor.watch()

    def _compose(self) -> Turns:
        """Returns the turns of the active parts; none is a method of this object, so that it can be freed."""
        state, rerun = self.state, self.rerun
        withholds = self.config.on_anomaly == "skip"  # else the training ends, or nothing is refused
        judge: list[Turn] = [self._accumulation.settle] if withholds else []
        judge += [rerun.prepare] if rerun.confirms else []
        judge += [self.judging.judge]
        judge += [self._accumulation.note] if withholds else []
        judge += [state.judge] if state.watches else []
        judge += [rerun.report_transient] if rerun.confirms else []
        act: list[Turn] = [self._weights.compare] if self.judging.ranks.size > 1 else []
        act += [rerun.attribute] if rerun.attributes else []
        act += [self._sampling.end_step] if self._sampling.is_on else []
        return Turns(judge, act)

    def make(self, step: Step, call: Callable[..., Any]) -> Any:
        """Returns what `call`, which runs a declared step, came to, or the second run that counts where one is due."""
        if self.monitor is None or self._table.replaying:
            return call(*step.args, **step.kwargs)
        is_first = self._made is None
        wait_for_pynative()
        self._remember(step, is_first=is_first)
        outputs = call(*step.args, **step.kwargs)
        wait_for_pynative()
        self._end_run(outputs)
        made = self._made
        return made.outputs if is_first and made is not None and made.again else outputs

    @shielded
    def _remember(self, step: Step, *, is_first: bool) -> None:
        if ms.get_context("mode") == ms.GRAPH_MODE:  # before the step may run for the first time
            self.state.keep()
        self.rerun.remember(step, is_first=is_first)

    @shielded
    def _end_run(self, outputs: Any) -> None:
        again, gate = self.rerun.again, self.gate
        if again is not None and gate is not None:
            self._look(gate, outputs)
            self._updates_in_run = self._table.updates(gate) if again.is_repeatable is None else None

    def _look(self, gate: Gate, outputs: Any) -> StepRecord:
        """Returns the record of the current step; called after each declared run, and when the step is judged."""
        step, is_new = self._made, self._made is None
        if is_new:
            in_python = ms.get_context("mode") == ms.PYNATIVE_MODE
            if not (in_python and self.state.measure()):  # what it measures is waited for
                waits = outputs if outputs is not None else getattr(self._optimizer, "global_step", None)
                next(map(to_host, tensors_in(waits)), None)
                self.state.measure()
        begin, refused = time.perf_counter(), self._table.newly_refused(gate) > 0
        if step is None:
            step = self._made = StepRecord(self._step + 1, outputs, self.judging.scale, refused)
            self._find_steps(step, gate)
        step.refused |= refused
        try:
            if step.readings is not None:  # of an earlier run
                updates = gate.updates
                step.readings = [*step.readings, *self._table.read(gate.sites, gate)]
                gate.updates = max(gate.updates, updates)
            elif is_new or refused:
                if is_new:
                    self.judging.find_scale(step)
                self.rerun.end(step)
        except Exception as error:  # as in `_judge`
            self._problems.once(f"a step was not re-run: {error!r}")
        self._looked += time.perf_counter() - begin
        return step

    def _find_steps(self, step: StepRecord, gate: Gate) -> None:
        """Finds how many steps a call with sunk data has made, and in which of them an update was refused first."""
        updates, first = self._table.since_read(gate) if self._sunk >= 0 else (1, 0)
        if self._sunk == 0 and updates > self._steps_a_call:
            self._steps_a_call = updates
            self.rerun.lose(why_not_kept(updates))
        if (made := self._steps_a_call) > 1:
            step.number = self._step + (-(-first * made // max(first, updates)) if first else made)
            step.among = f"{'the first refused' if first else 'one'} of steps {self._step + 1} to {self._step + made}"

    def expect_change(self) -> None:
        """Restarts the learning of values, from the next step on or from the one about to run."""
        if self.monitor is not None:
            self.monitor.judges.begin_anew()
            self.monitor.judges.forget_state()
            self.judging.write_limits()

    def step(self, outputs: Any) -> list[Event]:
        """Judges the step that just ran, and acts on the findings; returns its events."""
        monitor, gate, audit = self.monitor, self.gate, self.rerun.audit
        if monitor is None or gate is None or self._table.replaying:
            return []
        self._forgotten.is_called = True
        by_model = (self._called or self._fetcher) is not None  # whose `train` runs nothing else before `step`
        looked = by_model and ms.get_context("mode") == ms.GRAPH_MODE
        step = self._made if self._made is not None and looked else self._look(gate, outputs)
        self._made = None
        self._step += self._steps_a_call
        if self._updates_in_run == 0 and self.rerun.again is not None:
            self.rerun.again.updates_outside |= self._table.updates(gate) > 0
        self._judge(monitor, step)
        monitor.updates += (gate.updates or (0 if gate.guards else self._steps_a_call)) - step.refused
        updated = gate.updates > 0  # before a rerun reads it again
        if self._is_first:
            self._tell_after_first(monitor)
        if self.turns.act:
            self._act(monitor, step)
        is_due = self._step // EVERY > (self._step - self._steps_a_call) // EVERY
        if is_due or audit.first is not None or audit.apart or self._vendor.is_on:
            self._test_device(step)
        self.rerun.forget(updated=updated)
        self.state.seal(updated=updated)
        if len(self._table.gates.living) > 2:  # the default one, and that of another monitor
            self.judging.drop_strays()  # of reruns
        if (step.fatal is not None or step.damage is not None) and not self.judging.tells_all(step):
            self.end(step.fatal, step.damage)
        return step.events

    def _judge(self, monitor: Monitor, step: StepRecord) -> None:
        """Adds findings to the record of the step, and notes the time of judging."""
        begin = time.perf_counter() - self._looked
        self._looked = 0.0
        try:
            for turn in self.turns.judge:
                turn(step)
        except Exception as error:  # whatever it is: the detector's own failure must not end a training
            self._problems.once(f"a step was not judged: {error!r}")
        end = time.perf_counter()
        if self._last_end is not None:  # the first step has no beginning that is known
            monitor.status.step_seconds += end - self._last_end
            monitor.status.check_seconds += end - begin
        self._last_end = end

    def _act(self, monitor: Monitor, step: StepRecord) -> None:
        """Acts on the events of a step; if another rank is lost, ends the training."""
        try:
            for turn in self.turns.act:
                turn(step)
        except RankLostError as error:
            monitor.problem(str(error))
            self.end(step.fatal)  # an anomaly of this step is the better reason
            self.close()
            raise
        if step.refused and self.rerun.attributes:  # time of a rerun is not part of a step
            self._last_end = time.perf_counter()

    def _test_device(self, step: StepRecord) -> None:
        """Compares a step that ran twice, and runs known-answer tests, where that is due."""
        try:
            if self.rerun.audit.first is not None or self.rerun.audit.apart:
                self.rerun.audit.compare(step)
            self._probe.end_step(step)
            self._vendor.end_step(step)
        except Exception as error:  # as in `step`: what the step itself came to must still end a training
            self._problems.once(f"the device was not tested: {error!r}")

    def _tell_after_first(self, monitor: Monitor) -> None:
        self._is_first = False
        try:
            self._read_layout(monitor)
            self._sampling.report_first_step()
            after_first_step(monitor, self._net, self.judging.gate.sites)
            self.rerun.report_protection(after_first_step=True)
            self.state.report_first_step()
        except Exception as error:  # as in `step`
            monitor.problem(f"the protections of the training are unknown: {error!r}")
        monitor.tell_protections()

    def _read_layout(self, monitor: Monitor) -> None:
        """Reads the replica groups where MindSpore has chosen them with the first step."""
        ranks = self.judging.ranks
        found = groups_of_layout(ranks, self._net, self._held)
        if found is not None:
            ranks.divide(found)
            self._weights.watch(self._held, self.config.weight_hash)
            tell_groups(monitor, self.config, ranks)

    def end(self, fatal: Event | None, damage: Event | None = None) -> None:
        """Ends the training because of an event, if the settings say so.

        Raises:
            AnomalyDetected: They do; a `TrainingResultError` where MindSpore can roll the training back.
        """
        reason = self._ending.after(self._step, fatal, damage)
        if reason is not None:
            self._let_go()
            raise reason

    def watch_calls(self, cell: nn.Cell, step: Step) -> None:
        """Makes every call of a training cell a step, until the training ends."""
        self._leave_calls()
        self._called = cell, put_on(cell, _watched(type(cell), self.make, step))

    def watch_fetcher(self, cell: nn.Cell, step: Step) -> None:
        """Makes every call of `cell` a step, if its graph fetches a batch and runs `step`, until the training ends."""
        if cell is not self._fetcher and self.rerun.again is not None and isinstance(cell, find("_DataWrapper") or ()):
            self._leave_calls()  # of the training cell, which is not called itself
            if reason := keep_batches(cell, step.run, functools.partial(self._make_fetched, step)):
                self.rerun.lose(reason)
            self._fetcher = cell

    def _make_fetched(self, step: Step, fetch: MethodType) -> Any:
        again = self.rerun.again
        return fetch()[0] if again is None else self.make(step._replace(fetch=fetch), lambda: again.run_fetched(fetch))

    def _leave_calls(self) -> None:
        if self._called is not None:
            take_off(*self._called)
            self._called = None
        if self._fetcher is not None:
            self._fetcher.asd_make = None
            self._fetcher = None

    def close(self) -> None:
        """Removes the guard's limits and marks the training as ended."""
        # Where a rank was given up the device waits for an exchange that never ends.
        if self.monitor is None or self.judging.ranks.lost is None:
            self._forgotten.look()
        self._let_go()
        found, self.judging.found = self.judging.found, None
        if found is not None:  # no update came after it
            self.judging.gate.withholds = False
            if sys.exc_info()[0] is None:
                self.end(found)

    def _let_go(self) -> None:
        """Removes the limits and every watch on the training."""
        self._forgotten.stop()
        self._leave_calls()
        self._sampling.remove()
        if self._vendor.is_on:
            self._vendor.stop()
        if self.monitor is not None and self.gate is not None:
            self.gate.active = False
            if self.judging.ranks.lost is None:  # as above
                self._table.arm(False, self.gate)
            self.monitor.end()

    def follow_roll_back(self) -> None:
        """Takes over the rule state of the step to which MindSpore went back, if it was asked to go back."""
        if not self._ending.roll_backs:
            return
        if self._rule_state.follow_roll_back(updates_of(self._optimizer)):
            self._step = self._active().step
            self.judging.write_limits()

    def save_state(self, file: Path) -> Path:
        """Saves the state of the rules beside a checkpoint file."""
        self._active()
        path = self._rule_state.save(file, self._optimizer, self._step)
        self._vendor.saved()
        return path

    def save_manifest(self, file: Path, step: int = 0) -> None:
        """Writes a manifest beside a checkpoint file: whether the steps before it, the last is `step`, were clean."""
        self._active()
        self._rule_state.save_manifest(file, step or self._step)

    def save_new_states(self) -> None:
        """Saves rule state and manifest beside each checkpoint file that was written since the last call."""
        if self.monitor is None:
            return
        files = self._rule_state.files
        tasks: list[Any] = [(functools.partial(self.save_state, file), file) for file in files.new_files(self._step)]
        for file, step in files.complete_files() if self.config.manifest else ():
            tasks.append((functools.partial(self.save_manifest, file, step), file))
        for save, file in tasks:
            try:
                save()
            except Exception as error:  # whatever it is must not end a training, nor keep back another file
                why = getattr(error, "strerror", None) or error
                self.monitor.problem(f"the files beside {file} cannot be written: {why}")

    def _active(self) -> Monitor:
        if self.monitor is None:
            raise UnsupportedError("this StepMonitor is attached to no training yet: call attach first.")
        return self.monitor


def _watched(base: type, make: Callable[..., Any], step: Step) -> type:
    class Watched(base):
        def __call__(self, *args, **kwargs):
            if self is not step.run:  # a copy
                return super().__call__(*args, **kwargs)
            return make(step._replace(args=args, kwargs=kwargs), super().__call__)

    return Watched

"""StepMonitor: after each step, from the slots to the verdicts and back to the limits of the next step."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn
from mindspore.train import Callback, TrainFaultTolerance

from asd.attribution import Attribution
from asd.checkpoint_health import Health
from asd.config import Config, rolls_back
from asd.errors import AnomalyDetected, RankLostError, StateError, TrainingResultError, UnsupportedError
from asd.event import Event
from asd.manifest import taint, write_manifest
from asd.monitor import Monitor, Sink
from asd.operators.checksum import Checksum, claim_products
from asd.operators.exchange import Exchange
from asd.operators.gradient_samples import POLL_STEPS, poll, sample_gradients
from asd.operators.guard import gradient_sites, guard
from asd.operators.install import install
from asd.operators.loss_scale import LossScale
from asd.operators.optimizer_state import OptimizerState
from asd.operators.origin import origin_of_process
from asd.operators.rank_features import comparable, features_of_ranks
from asd.operators.ranks import attribution_of
from asd.operators.replay import Replay, Step, bits_of_first
from asd.operators.resume import CheckpointWatch, resumed_step, state_path, state_to_resume
from asd.operators.seal import StateSeal
from asd.operators.slots import KernelTable, Site, table
from asd.operators.weights import WeightComparison
from asd.reading import CHECKSUM, SAMPLE, Reading
from asd.replay import Answer, Finding
from asd.rules.checksum import Checksum as Checked
from asd.run_dir import NARROWING, evidence_folder
from asd.sinks import open_sinks
from asd.statefile import save_state
from asd.tiers import KINDS, Features

__all__ = ["StepMonitor"]

_LOG = logging.getLogger("asd.install")
_MOST_ROLL_BACKS = 10
_WARM = 20
"""Steps in which the optimizer's state is read each time, for it grows quickly."""


class StepMonitor(Callback):
    """Judges every checked value after each step and acts on what it finds.

    As a callback of `Model.train` it does everything by itself: it puts checks on the network, guards the optimizer,
    finds the loss scale, and keeps its state beside the checkpoints that a `ModelCheckpoint` writes. In a loop of your
    own, call `attach` before the first step and `step` after each:

        monitor = StepMonitor()
        monitor.attach(net, optimizer)
        for batch in data:
            loss = train_step(batch)
            monitor.step(loss)

    With `train_step = monitor.watch_step(train_step)` before the loop, a step with a first-level anomaly can be made
    again there too, which tells hardware from software, see `asd.replay`.

    Args:
        config: From the environment if not given. With `enable=0` nothing is done.
        loss_scale: A `LossScale` or what it takes; found by itself in MindSpore's and mindformers' training cells.
        include: More cells to check, see `install`.
        exclude: Cells not to check, see `install`.
        sinks: Where events go; if not given, every sink that is installed, see `asd.sinks`.
        resume_from: Checkpoint file the training resumes from. If not given, and the optimizer has made steps already,
            the state is searched beside the checkpoints of the callbacks and under `ASD_RUN_DIR`.
        history: Values kept of each checkpoint.
        replay: Whether a step whose update was refused is made again; `ASD_REPLAY` if not given.
        checksum: Whether matrix products are checked as well; a `Checksum` says which of them and how often. If not
            given, they are with tier `checksum`.

    Raises:
        ConfigError: The environment or an argument has a wrong value.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        loss_scale: Any = None,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        sinks: Sequence[Sink] | None = None,
        resume_from: str | Path | None = None,
        history: int = 200,
        replay: bool | None = None,
        checksum: bool | Checksum | None = None,
    ) -> None:
        super().__init__()
        self.config = config if config is not None else Config.of_process()
        self.monitor: Monitor | None = None
        self._loss_scale = loss_scale if isinstance(loss_scale, LossScale) else LossScale(loss_scale)
        self._find_loss_scale = loss_scale is None
        self._scaler = loss_scale
        self._include, self._exclude = include, exclude
        self._judges_history = "adaptive" in self.config.active_tiers
        self._sinks = sinks
        self._resume_from = resume_from
        self._history = history
        self._wants_replay = replay if replay is not None else self.config.replay
        self._replay: Replay | None = None
        if checksum is None:
            checksum = "checksum" in self.config.active_tiers
        self._checksum = Checksum() if checksum is True else checksum or None
        if self._checksum is None and self.config.combined.enable and self.config.combined.with_checksum:
            self._checksum = Checksum(every=0, suspicious_steps=0)  # until a strike-out switches it on
        self._watch = CheckpointWatch(())
        self._sites: list[Site] = []
        self._optimizer: nn.Cell | None = None
        self._step = 0
        self._scale = 1.0
        self._refused = 0
        self._told: set[str] = set()
        self._last_end: float | None = None
        self._ranks = Exchange()
        self._weights = WeightComparison((), self._ranks, 0)
        self._announced = 0
        self._unproven: list[Path] = []
        self._rolls_back = False
        self._roll_backs: list[int] = []
        self._state: OptimizerState | None = None
        self._seal: StateSeal | None = None
        self._health = Health()

    # What a training engineer calls in a loop of her own.

    def attach(self, net: nn.Cell | None, optimizer: nn.Cell | None = None) -> nn.Cell | None:
        """Puts checks on `net`, guards `optimizer`, and takes over the state of the training that is resumed.

        Attached once more to the same optimizer, as by a second `Model.train`, it goes on with the rules it has.

        Args:
            net: The network, or a training cell around it. Nothing of it may have been compiled yet. Without it, what
                is judged are the check operators that belong to no installed network.
            optimizer: The optimizer; without it a bad update is reported but not refused.

        Returns:
            `optimizer`.
        """
        if not self.config.enabled:
            return optimizer
        goes_on = self.monitor is not None and optimizer is self._optimizer
        if not goes_on:
            origin = origin_of_process(self.config)
            sinks = self._sinks if self._sinks is not None else open_sinks(self.config, origin)
            self.monitor = Monitor(self.config, origin, sinks, value_sink=_value_sink(sinks), history=self._history)
            self._optimizer = optimizer
            self._step = resumed_step(optimizer)
        self._find_sites(net)
        self._ranks = Exchange()
        weights = net.trainable_params() if net is not None else getattr(optimizer, "parameters", ())
        self._weights = WeightComparison(weights, self._ranks, self.config.weight_hash)
        self._announced, self._unproven = table().announced(), []
        if optimizer is not None:
            self._watch_optimizer(net, optimizer)
        if not goes_on:
            self._restore()
        if net is not None:
            table().read(self._sites)  # what another training left there
        table().arm(armed=self.config.refuses)
        table().keep(self.config.evidence_mb << 20)
        self._refused = table().refused()
        self._write_limits()
        self._schedule_checksums(suspicious=False)
        self._active().begin()
        return optimizer

    def step(self, outputs: Any = None) -> list[Event]:
        """Judges the step that has just been made.

        Args:
            outputs: Any output of the step, such as its loss. Compiled graphs run on while Python goes on; reading an
                output waits for all of the step. Without one, the optimizer's `global_step` is read.

        Returns:
            The events of this step.

        Raises:
            AnomalyDetected: A first-level anomaly, and `ASD_ON_ANOMALY` is `stop`; or the weights of the ranks are not
                alike, and it is not `log`. A `TrainingResultError` where MindSpore can roll the training back.
            RankLostError: Another rank died or hangs while the ranks exchange what they know.
        """
        if self.monitor is None:
            return []
        if table().replaying:
            return []
        self._step += 1
        _wait(outputs if outputs is not None else getattr(self._optimizer, "global_step", None))
        begin = time.perf_counter()
        refused, scale = table().refused() - self._refused, self._scale
        self._refused += refused
        events: list[Event] = []
        fatal = None
        try:
            events, fatal = self._judge(refused=refused > 0)
        except Exception as error:  # whatever it is: the detector's own failure must not end a training
            self._problem_once(f"a step was not judged: {error!r}")
        finally:
            self._count_time(begin, time.perf_counter())
        try:
            damage = self._compare_weights()
            if damage is not None:
                events.append(damage)
            if refused and self._wants_replay:
                events += self._replay_step(outputs, fatal, scale)
                self._last_end = time.perf_counter()  # what a replay takes is no part of a step
            self._plan_checksums(events)
        except RankLostError as error:
            self._problem(str(error))
            self._end(fatal)  # an anomaly of this step is the better reason
            self.close()
            raise
        self._end(fatal, damage)
        self._close_seal()
        return events

    def watch_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """`step`, whose calls can be made again: what it does must follow from its arguments and the network.

        Args:
            step: A training cell or a function that makes one step; it changes nothing but Parameters of the network
                and the optimizer.
        """

        @functools.wraps(step if not isinstance(step, nn.Cell) else step.construct)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.remember(step, *args, **kwargs)
            return step(*args, **kwargs)

        return watched

    def remember(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Says that the next step is `step(*args, **kwargs)`; for those who can't use `watch_step`.

        Raises:
            AnomalyDetected: A weight or a state of the optimizer changed since the last step, and `ASD_ON_ANOMALY` is
                `stop`. A `TrainingResultError` where MindSpore can roll the training back.
        """
        changed = self._open_seal()
        if self._replay is not None:
            self._replay.remember(Step(step, args, kwargs))
        self._end(changed)

    def save_state(self, checkpoint_file: str | Path) -> Path:
        """Saves the rule state beside `checkpoint_file`, so that a resumed training judges as if it had never stopped.

        Raises:
            OSError: The file can't be written. Nothing that was there before is lost.
        """
        monitor = self._active()
        path = state_path(checkpoint_file, monitor.origin.rank)
        updates, tainted_from = resumed_step(self._optimizer), self._health.tainted_from
        save_state(path, {**monitor.state(), "step": self._step, "updates": updates, "tainted_from": tainted_from})
        if self._weights.active:
            self._unproven.append(Path(checkpoint_file))
            table().announce()
        return path

    def save_manifest(self, checkpoint_file: str | Path) -> None:
        """Says beside `checkpoint_file` whether the steps before it were clean, with its hash.

        For the rank that wrote the file; after `save_state`.

        Raises:
            OSError: The checkpoint can't be read or the manifest not be written.
        """
        monitor = self._active()
        write_manifest(
            Path(checkpoint_file), step=self._step, updates=resumed_step(self._optimizer), **monitor.origin._asdict(),
            health=self._health, rule_state=state_path(checkpoint_file, monitor.origin.rank).name,
            run_dir=Path(self.config.run_dir),
        )  # fmt: skip

    def close(self) -> None:
        """Takes the guard's limits away and says that the training has ended."""
        table().arm(armed=False)
        table().keep(0)
        if self.monitor is not None:
            self.monitor.end()

    # What MindSpore calls.

    def on_train_begin(self, run_context: Any) -> None:
        """Attaches to the network that is about to be trained."""
        if not self.config.enabled:
            return
        training = run_context.original_args()
        train_network = training.train_network
        if self._find_loss_scale:
            self._loss_scale = LossScale.of(train_network)
        self._watch = CheckpointWatch(training.get("list_callback") or ())
        callbacks = getattr(training.get("list_callback"), "_callbacks", None) or training.get("list_callback") or ()
        self._rolls_back = rolls_back() and any(isinstance(each, TrainFaultTolerance) for each in callbacks)
        optimizer = training.get("optimizer") or next(
            (cell for _, cell in train_network.cells_and_names() if isinstance(cell, nn.Optimizer)), None
        )
        self.attach(train_network, optimizer)
        if self._roll_backs:
            self._follow_roll_back()
        if training.get("dataset_sink_mode") and ms.get_context("device_target") != "CPU":
            self._problem("dataset sink mode: values are judged once every sink_size steps; the worst of them counts")

    def on_train_step_begin(self, run_context: Any) -> None:
        """Saves the state that belongs to a checkpoint written after the last step; remembers the batch."""
        changed = self._open_seal()  # before a manifest calls a checkpoint of what it finds clean
        self._save_new_states()
        self._end(changed)
        training = run_context.original_args()
        batch = training.get("train_dataset_element")
        if batch is not None and not training.get("dataset_sink_mode"):
            self.remember(training.train_network, *batch)

    def on_train_step_end(self, run_context: Any) -> None:
        """Judges the step."""
        self.step(run_context.original_args().net_outputs)
        self._save_new_states()

    def on_train_end(self, run_context: Any) -> None:
        """Saves the state of a last checkpoint and lets the gate go."""
        self._save_new_states()
        self.close()

    def _find_sites(self, net: nn.Cell | None) -> None:
        before, self._sites = self._sites, []
        if net is not None:
            try:
                installation = install(net, include=self._include, exclude=self._exclude, forward=self._judges_history)
                _LOG.info("%s", str(installation).replace("\n", "; "))
                self._sites = installation.sites
            except UnsupportedError as error:
                self._problem(str(error))
            self._sites += self._checksum.install(net) if self._checksum is not None else claim_products(net)
        # Check operators that no cell holds belong to whoever trains.
        self._sites += [site for site in before if not site.claimed]
        self._sites += [site for site in table().sites() if not (site.claimed or site.watched)]
        for site in self._sites:
            site.watched = True
        if self._checksum is None and any(site.kind == CHECKSUM for site in self._sites):
            self._checksum = Checksum()

    def _watch_optimizer(self, net: nn.Cell | None, optimizer: nn.Cell) -> None:
        if self.config.refuses:
            guard(optimizer, gradients=self._judges_history)
            self._sites += [site for site in gradient_sites(optimizer) if site not in self._sites]
        if self.config.combined.enable:
            # Outside the guard: what a refused update would have been is a sample too.
            self._sites += sample_gradients(net, optimizer, every=self.config.combined.grad_sample_interval)
        if self.config.refuses:
            self._replay = self._new_replay(net, optimizer)
        if "state" in self.config.active_tiers:
            self._state = OptimizerState(optimizer)
            # Elsewhere the weights would have to be copied to the host twice.
            self._seal = StateSeal(self._state.parameters) if isinstance(table(), KernelTable) else None

    def _plan_checksums(self, events: Sequence[Event]) -> None:
        """Asks the ranks about their strikes when it is time; a call of all ranks."""
        if self.config.combined.enable and self.config.combined.with_checksum:
            scheme = self._active().scheme
            failed = any(event.rule == Checked.name for event in events)
            own = scheme.message(self._active().clock(), failed=failed)
            if self._step % POLL_STEPS == 0:
                poll(scheme, own, self._ranks)
        self._schedule_checksums(suspicious=bool(events))

    def _schedule_checksums(self, *, suspicious: bool) -> None:
        if self._checksum is not None:
            running = self._active().scheme.running
            self._checksum.begin_step(self._step + 1, suspicious=suspicious, everything=running)

    def _judge(self, *, refused: bool) -> tuple[list[Event], Event | None]:
        slots, monitor = table(), self._active()
        captures = slots.captures(self._sites)
        readings = slots.read(self._sites)
        attribution = self._whose_fault(readings) if refused else None
        outcome = monitor.judge(
            self._step,
            readings,
            loss_scale=self._scale,
            overflow_expected=self._loss_scale.dynamic,
            refused=refused,
            captures=captures,
            attribution=attribution,
            ranks=self._seen_by_ranks(readings),
        )
        fatal = outcome.fatal
        if not refused:
            if fatal is None and outcome.elsewhere:
                fatal = monitor.follow(self._step, refused=False)
                outcome.events.append(fatal)
            in_state = self._judge_state(readings)
            if in_state is not None:
                outcome.events.append(in_state)
                fatal = fatal or in_state
        if refused and fatal is None and not self._loss_scale.dynamic:
            # Nothing broke a limit here, so another rank did. Under a dynamic loss scale it may just have overflowed.
            fatal = monitor.follow(self._step, attribution)
            outcome.events.append(fatal)
        if not readings:
            self._problem_once(
                "nothing was checked: the graph was compiled before the checks were put in, or no gradient reaches them"
            )
        for event in outcome.events:
            self._health.add(event)
        if slots.unsupported():
            self._problem_once(
                "a gradient has a type that can't be checked; valid are float16, bfloat16, float32, float64"
            )
        self._write_limits()
        return outcome.events, fatal

    def _whose_fault(self, readings: Sequence[Reading]) -> Attribution | None:
        try:
            return attribution_of(self._ranks, self._active().seen(readings, loss_scale=self._scale))
        except RankLostError:
            pass  # what this one saw is judged all the same; the exchange keeps the error, which ends the step
        except Exception as error:  # as in `step`
            self._problem(f"the ranks could not be compared: {error!r}")
        return None

    def _end(self, fatal: Event | None, damage: Event | None = None) -> None:
        """Ends the training, if the settings say so; refusing an update mends no damaged weights."""
        if fatal is None or self.config.on_anomaly != "stop":
            fatal = damage if self.config.refuses else None
        if fatal is None:
            return
        self.close()
        in_vain = self._step in self._roll_backs or len(self._roll_backs) == _MOST_ROLL_BACKS
        if not self._rolls_back or in_vain:
            raise AnomalyDetected(fatal)
        self._roll_backs.append(self._step)
        raise TrainingResultError(fatal)

    def _compare_weights(self) -> Event | None:
        """Whether all ranks have the same weights, if it is time to ask; the event if they have not."""
        announced, self._announced = table().announced() - self._announced, table().announced()
        begin = time.perf_counter()
        if self._ranks.lost is not None:
            raise self._ranks.lost
        found = self._weights.after(self._step, announced=announced > 0)
        self._active().status.check_seconds += time.perf_counter() - begin
        if found is None:
            if self._weights.alike == self._step:
                self._unproven = []
            return None
        if not self._weights.active:
            self._problem(f"weights are not compared over the ranks, for they began unlike: {found.reason}")
            return None
        event = self._active().weights_differ(self._step, found)
        first = (self._weights.alike or 0) + 1
        self._health.taint(first)
        for file in self._unproven:
            try:
                taint(file, first)
            except OSError as error:
                self._problem(f"the manifest of {file} can't be written: {error.strerror or error}")
        return event

    def _seen_by_ranks(self, readings: Sequence[Reading]) -> dict[str, list[Features]] | None:
        if "ranks" not in self.config.active_tiers or self._ranks.size == 1 or not comparable():
            return None
        try:
            sizes = [reading for reading in readings if reading.kind in KINDS]
            told = features_of_ranks(self._ranks, sizes, self._scale)
        except Exception as error:  # a rank may have died; what this one saw is judged all the same
            self._problem_once(f"the ranks could not be compared: {error}")
            return None
        if told is None:
            self._problem_once("the ranks could not be compared: they did not see the same checkpoints")
        return told

    def _judge_state(self, readings: Sequence[Reading]) -> Event | None:
        """The event of a first-level anomaly in the weights or the optimizer's state, where that is read."""
        state, status = self._state, self._active().status
        if state is None:
            return None
        state.note(readings)
        if self._step % state.every:
            return None
        found = self._active().judge_state(self._step, state.read(), state.where, state.growth())
        if self._step >= _WARM and status.steps > 1:
            more = self._seal.seconds if self._seal is not None else 0.0
            state.pace(status.step_seconds / (status.steps - 1), more)
        return found

    def _close_seal(self) -> None:
        """Keeps hashes of the weights and the optimizer's state that a step left, as often as these are read."""
        if self._seal is None or self._state is None or self._step % self._state.every:
            return
        begin = time.perf_counter()
        try:
            self._seal.close(self._step)
        except Exception as error:  # as in `step`
            self._problem_once(f"weights were not hashed: {error!r}")
        self._active().status.check_seconds += time.perf_counter() - begin

    def _open_seal(self) -> Event | None:
        """The event of a weight or a state that changed since the last step ended."""
        if self._seal is None or table().replaying:
            return None
        begin = time.perf_counter()
        try:
            both = self._seal.open()
            found = self._active().judge_seal(*both) if both is not None else None
        except Exception as error:  # as in `step`
            self._problem_once(f"weights were not compared with those of the last step: {error!r}")
            return None
        self._active().status.check_seconds += time.perf_counter() - begin
        if found is not None:
            self._health.add(found)
        return found

    def _new_replay(self, net: nn.Cell | None, optimizer: nn.Cell) -> Replay | None:
        """One for this network, or the old one if it is the same."""
        if not self._wants_replay or net is None:
            return None
        held = vars(self._scaler).values() if hasattr(self._scaler, "__dict__") else ()
        try:
            also = [value for value in held if isinstance(value, Parameter)]
            return Replay(net, optimizer, self._sites, also, self._ranks)
        except UnsupportedError as error:
            self._problem(f"no step will be replayed: {error}")
            return None

    def _replay_step(self, outputs: Any, fatal: Event | None, scale: float) -> list[Event]:
        """Makes the refused step again; the verdict about this rank, if it has an anomaly of its own."""
        anomaly = fatal if fatal is not None and fatal.kind == "anomaly" else None
        monitor = self._active()
        finding: Finding | None = Finding("undetermined", "the network is not known, so its steps can't be made again")
        if self._replay is not None:
            try:
                answer = Answer.of(bits_of_first(outputs), monitor.readings)
                finding = self._replay.judge(answer, anomaly, scale, folder=self._folder_to_narrow(anomaly))
            except RankLostError:
                raise
            except Exception as error:  # as in `step`
                self._problem(f"a step was not replayed: {error!r}")
                finding = Finding("undetermined", f"the replay failed: {error}")
        if anomaly is None or finding is None:
            return []
        reason = finding.reason
        if finding.verdict == "software":
            reason += f"; if it is data, then the batch of rank {anomaly.rank} in step {anomaly.step}"
        event = replace(anomaly, kind="replay", verdict=finding.verdict, reason=reason, time=monitor.clock())
        monitor.publish(event)
        return [event]

    def _folder_to_narrow(self, anomaly: Event | None) -> Path | None:
        """Where the search for the operator leaves what it finds: beside the evidence of the anomaly."""
        if not self.config.narrow:
            return None
        if anomaly is not None and anomaly.evidence:
            return Path(anomaly.evidence) / NARROWING
        origin = self._active().origin
        return evidence_folder(Path(self.config.run_dir), origin.run, origin.rank, self._step) / NARROWING

    def _count_time(self, begin: float, end: float) -> None:
        """From the end of the last step to the end of this one; the first has no beginning that is known."""
        status = self._active().status
        if self._last_end is not None:
            status.step_seconds += end - self._last_end
            status.check_seconds += end - begin
        self._last_end = end

    def _write_limits(self) -> None:
        monitor = self._active()
        self._scale = self._loss_scale.read()
        judged = [site for site in self._sites if site.kind != SAMPLE]
        table().set_limits([(site, monitor.limit(site.name, site.kind)) for site in judged], self._scale)

    def _restore(self) -> None:
        monitor = self._active()
        folders = [*self._watch.folders(), Path(self.config.run_dir)]
        try:
            state = state_to_resume(self._resume_from, folders, monitor.origin.rank, self._step)
            if state is not None:
                monitor.restore(state, [site.name for site in self._sites])
                self._health = Health(int(state.get("tainted_from", 0)))
                self._step = monitor.step
        except StateError as error:
            self._problem(f"{error} The rules start anew.")

    def _follow_roll_back(self) -> None:
        """Takes the state of the step to which MindSpore went back; without one the rules are kept as they are."""
        monitor = self._active()
        with contextlib.suppress(StateError):
            state = state_to_resume(None, self._watch.folders(), monitor.origin.rank, resumed_step(self._optimizer))
            if state is not None:
                monitor.restore(state, [site.name for site in self._sites])
                self._health = Health(int(state.get("tainted_from", 0)))
                self._step = monitor.step
                self._write_limits()

    def _save_new_states(self) -> None:
        if self.monitor is None:
            return
        for file in self._watch.new_files():
            try:
                self.save_state(file)
                if self.config.manifest:
                    self.save_manifest(file)
            except OSError as error:
                self._problem(f"what belongs beside {file} can't be written: {error.strerror or error}")

    def _active(self) -> Monitor:
        if self.monitor is None:
            raise UnsupportedError("this StepMonitor is attached to no training yet: call attach first.")
        return self.monitor

    def _problem(self, reason: str) -> None:
        self._active().problem(reason)

    def _problem_once(self, reason: str) -> None:
        if reason in self._told:
            self._active().status.problems += 1  # counted every time, said once
        else:
            self._told.add(reason)
            self._problem(reason)


def _wait(outputs: Any) -> None:
    """Waits for the step by reading one of its outputs."""
    while isinstance(outputs, (tuple, list)) and outputs:
        outputs = outputs[0]
    if isinstance(outputs, Tensor):
        outputs.asnumpy()


def _value_sink(sinks: Sequence[Any]) -> Any:
    return next((sink.values for sink in sinks if hasattr(sink, "values")), None)

"""StepMonitor: what a training calls, by hand or as a callback of MindSpore."""

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.train import Callback

from asd.config import Config, unknown_variables
from asd.errors import ConfigError
from asd.event import Event
from asd.judge.delivery import Sink
from asd.judge.monitor import Monitor
from asd.operators.monitor.training_watch import TrainingWatch
from asd.operators.private.boundary import shielded, wait_for_pynative
from asd.operators.private.names import newer_version
from asd.operators.rerun.repeatable_step import Step, is_known

_LOG = logging.getLogger("asd")


class StepMonitor(Callback):
    """Monitor that judges every checked value after each step and acts on anomalies.

    As a callback of `Model.train` it does everything by itself: it puts checks on the network, guards the optimizer,
    finds the loss scale, and keeps its state beside the checkpoints that a `ModelCheckpoint` writes. In a loop of your
    own, call `attach` before the first step and `step` after each:

        monitor = StepMonitor()
        monitor.attach(net, optimizer)
        for batch in data:
            loss = train_step(batch)
            monitor.step(loss)

    With `train_step = monitor.watch_step(train_step)` before the loop, a step with a first-level anomaly can be made
    again there too, which tells hardware from software, see `asd.diagnosis.rerun`.

    Args:
        config: From the environment if not given. With `enable=0` nothing is done.
        loss_scale: A `LossScale` or what it takes; found by itself in MindSpore's and mindformers' training cells.
        include: More cells to check, see `install`.
        exclude: Cells not to check, see `install`.
        sinks: Where events go; if not given, every sink that is installed, see `asd.sinks`.
        resume_from: Checkpoint file the training resumes from. If not given, and the optimizer has made steps already,
            the state is searched beside the checkpoints of the callbacks and under `ASD_RUN_DIR`.
        history: Values kept of each checkpoint.
        replay: Whether a step whose update was refused is re-run; the option `replay` if not given.

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
    ) -> None:
        super().__init__()
        self.config = config if config is not None else Config.of_process()
        if config is None:
            for name, instead in unknown_variables().items():
                _warn_once(f"{name} is not read by asd and changes nothing here: use {instead}")
            if not self.config.enabled:  # a program that passes a `Config` needs no warning
                _warn_once("nothing is checked: NPU_ASD_ENABLE is 0; set it to 1, 2 or 3 to detect.")
        if self.config.enabled and (newer := newer_version()):
            _warn_once(newer)
        self._declared: dict[int, Step] = {}
        self._sunk: Step | None = None
        self._entered = 0  # times: `Model.fit` enters callbacks for each evaluation too
        self._training = TrainingWatch(
            self.config, loss_scale, include, exclude, sinks, resume_from, history, replay=replay
        )

    @property
    def monitor(self) -> Monitor | None:
        """Monitor that judges the training; None before `attach`."""
        return self._training.monitor

    @property
    def is_over(self) -> bool:
        """Returns whether its training has ended, or another monitor judges it."""
        return self._training.gate is not None and self._training.gate.is_free

    # What a training engineer calls in a loop of her own.

    def attach(
        self,
        net: nn.Cell | None,
        optimizer: nn.Cell | Sequence[nn.Cell] | None = None,
        *,
        reducer: nn.Cell | None = None,
    ) -> Any:
        """Puts checks on `net`, guards `optimizer`, and takes over the state of the training that is resumed.

        Attached once more to the same optimizer, as by a second `Model.train`, it goes on with the rules it has, or
        with those of another monitor that judged updates since. After updates without a judge it learns again.

        Args:
            net: The network, or a training cell around it. Nothing of it may have been compiled yet. Without it, what
                is judged are the check operators that belong to no installed network.
            optimizer: The optimizer, or a list of all that make a step together; without it a bad update is reported
                but not refused.
            reducer: The `nn.DistributedGradReducer` of a data-parallel loop of your own, which no cell of `net` holds.
                With it gradients are looked at before their mean over the ranks is taken.

        Returns:
            `optimizer`.

        Raises:
            ConfigError: `reducer` is not one for this optimizer, or a list holds other things than optimizers.
        """
        if self.config.enabled:
            self._attach(net, optimizer, reducer)
        return optimizer

    @shielded
    def _attach(self, net: nn.Cell | None, optimizer: Any, reducer: nn.Cell | None) -> None:
        self._training.attach(net, optimizer, reducer)

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
        if self._training.monitor is not None:
            wait_for_pynative()
        return self._step(outputs) or []

    @shielded
    def _step(self, outputs: Any) -> list[Event]:
        return self._training.step(outputs)

    @shielded
    def expect_change(self) -> None:
        """Announces that gradients or weights will change on purpose, from the next step on.

        Call it before that step, or in `on_train_step_begin` of a callback of your own, on all ranks: where another
        loss begins, its weight jumps, layers are unfrozen, or weights are replaced. What places have shown so far is
        forgotten, and learned anew in three steps; meanwhile only values that are not finite and the first absolute
        threshold of `NPU_ASD_UPPER_THRESH` are first-level anomalies.
        """
        self._training.expect_change()

    def watch_step(
        self,
        step: Callable[..., Any],
        save: Callable[[], Any] | None = None,
        restore: Callable[[Any], object] | None = None,
        *,
        audit: bool = False,
    ) -> Callable[..., Any]:
        """Returns `step`, declared as one that can be re-run.

        Before it is made again Parameters of the network and the optimizer, and the random states of MindSpore, NumPy
        and Python, are as they were. Everything else that it changes needs `save` and `restore`.

        Args:
            step: A training cell or a function that makes one step. A cell of your own that `Model.train` calls is
                declared by this call; the result is not needed then.
            save: Called before each step; returns what the step will change.
            restore: Called with what `save` returned, to put it back.
            audit: Whether one of 200 steps may be made twice in a healthy training too. A counter of Python's that is
                left out would then count one too many. Training cells of MindSpore are audited in graph mode anyway.

        Raises:
            ConfigError: Only one of `save` and `restore` is given.
        """
        if (save is None) != (restore is None):
            raise ConfigError("watch_step", "save" if save else "restore", "pass both `save` and `restore`, or neither")
        declared, make = Step(step, save=save, restore=restore, audited=audit), self._training.make
        if isinstance(step, nn.Cell):
            self._declared[id(step)] = declared

        @functools.wraps(step if not isinstance(step, nn.Cell) else step.construct)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return make(declared._replace(args=args, kwargs=kwargs), step)

        return watched

    def save_state(self, checkpoint_file: str | Path) -> Path:
        """Saves the rule state beside `checkpoint_file`, so that a resumed training judges as if it had never stopped.

        Raises:
            OSError: The file can't be written. Nothing that was there before is lost.
        """
        return self._training.save_state(Path(checkpoint_file))

    def save_manifest(self, checkpoint_file: str | Path) -> None:
        """Writes a manifest beside `checkpoint_file`: its hash, and whether the steps before it were clean.

        Call it on the rank that wrote the file, after `save_state`.

        Raises:
            OSError: The checkpoint can't be read or the manifest not be written.
        """
        self._training.save_manifest(Path(checkpoint_file))

    @shielded
    def close(self) -> None:
        """Removes the guard's limits and marks the training as ended."""
        self._training.close()

    # What MindSpore calls.

    @shielded
    def on_train_begin(self, run_context: Any) -> None:
        """Attaches to the network that is about to be trained."""
        if not self.config.enabled:
            return
        training = run_context.original_args()
        train_network = training.train_network
        steps = training.get("sink_size", 0) if ms.get_context("mode") == ms.GRAPH_MODE else 1
        sunk = steps if training.get("dataset_sink_mode") else -1
        self._training.look_at(train_network, training.get("list_callback"), sunk=sunk)
        optimizer = training.get("optimizer") or next(
            (cell for _, cell in train_network.cells_and_names() if isinstance(cell, nn.Optimizer)), None
        )
        self.attach(train_network, optimizer)
        self._training.follow_roll_back()
        step = self._declared.get(id(train_network), Step(train_network) if is_known(train_network) else None)
        if step is not None:
            self._training.watch_calls(train_network, step)
        self._sunk = step if sunk >= 0 else None

    @shielded
    def on_train_step_begin(self, run_context: Any) -> None:
        """Saves the state that belongs to a checkpoint written after the last step; finds what fetches sunk data."""
        self._training.save_new_states()
        if self._sunk is not None:
            self._training.watch_fetcher(run_context.original_args().train_network, self._sunk)

    @shielded
    def on_train_step_end(self, run_context: Any) -> None:
        """Judges the step."""
        self.step(run_context.original_args().net_outputs)
        self._training.save_new_states()

    def __enter__(self) -> "StepMonitor":
        self._entered += 1
        return self

    @shielded
    def __exit__(self, *err: Any) -> None:
        """Saves the state of a last checkpoint, which other callbacks may write at the end, and closes the monitor."""
        self._entered -= 1
        if not any(err):
            self._training.save_new_states()
        if any(err) or not self._entered:
            self.close()

    @shielded
    def on_train_end(self, run_context: Any) -> None:
        """Saves the state of a last checkpoint, and closes the monitor where nothing calls `__exit__` later."""
        self._training.save_new_states()
        if not self._entered:
            self.close()


@functools.cache
def _warn_once(sentence: str) -> None:
    _LOG.warning("%s", sentence)

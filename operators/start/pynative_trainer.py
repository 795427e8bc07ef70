"""Judges trainings by the Trainer of mindformers 2 in PyNative, which calls its callbacks in its own way."""

from __future__ import annotations

import functools
import sys
from typing import Any

from mindspore import nn

from asd.operators.monitor.step_monitor import StepMonitor
from asd.operators.private import patches
from asd.operators.private.boundary import shielded
from asd.operators.rerun.repeatable_step import Step

_TRAINER = "mindformers.pynative"
_GROUP = "trainer"
_STEPS = ("training_step", "training_pp_step")


class TrainerMonitor(StepMonitor):
    """`StepMonitor` as a callback of mindformers' Trainer, versions 1 and 2.

    Version 2 passes a callback its settings and its state, and all else by name. It has no place between gradients and
    optimizer, so the optimizer's own call is guarded, and each gradient is measured before it is clipped.
    """

    _trainer_step: TrainerStep | None = None

    def make(self, trainer: Any, call: Any, args: Any, kwargs: Any) -> Any:
        """Returns the result of a step of `trainer`, which is declared with its batches as arguments."""
        if self._trainer_step is None or self._trainer_step.trainer is not trainer:
            self._trainer_step = TrainerStep(trainer)
        step = self._trainer_step
        run = functools.partial(call, trainer, *args, **kwargs)
        return self._training.make(Step(step.again, (step.read(), run)), step.first)

    @shielded
    def on_train_begin(self, run_context: Any, state: Any = None, **training: Any) -> None:
        """Attaches to the network that is about to be trained."""
        if state is None:
            super().on_train_begin(run_context)
        elif self.config.enabled:
            net = _as_one(training["model"])
            self._training.look_at(net, (), clips=True)
            self.attach(net, training.get("optimizer"))

    @shielded
    def on_step_end(self, run_context: Any, state: Any, **training: Any) -> None:
        """Judges the step, with all of its micro-batches."""
        self.step(training.get("loss"))

    @shielded
    def on_train_end(self, run_context: Any, state: Any = None, **training: Any) -> None:
        """Releases the gate."""
        if state is None:
            super().on_train_end(run_context)
        else:
            self.close()

    def _pass(self, run_context: Any, state: Any, **training: Any) -> None:
        """Ignores the Trainer's other calls."""

    on_begin = on_end = on_epoch_begin = on_epoch_end = on_step_begin = _pass


class TrainerStep:
    """Step of a Trainer that can be re-run: its batches are read before it, in the Trainer's order.

    Attributes:
        trainer: The Trainer.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self._skipped = self._counts()

    def _counts(self) -> tuple[int, int]:
        return getattr(self.trainer, "_consecutive_skipped_steps", 0), getattr(self.trainer.state, "skipped_steps", 0)

    def read(self) -> tuple[Any, ...]:
        """Returns the batches of the next step."""
        self._skipped = self._counts()
        return tuple(self.trainer._next_batch() for _ in range(self.trainer.num_accumulation_steps))

    def first(self, batches: tuple[Any, ...], run: Any) -> Any:
        """Runs the step on these batches."""
        self.trainer._next_batch = iter(batches).__next__
        try:
            return run()
        finally:
            del self.trainer._next_batch

    def again(self, batches: tuple[Any, ...], run: Any) -> Any:
        """Re-runs the step; the Trainer keeps its records of the first run."""
        trainer, recorder = self.trainer, self.trainer.monitor
        trainer.monitor = _Unrecorded()
        trainer._consecutive_skipped_steps, trainer.state.skipped_steps = self._skipped
        try:
            return self.first(batches, run)
        finally:
            trainer.monitor = recorder


class _Unrecorded:
    def should_record(self, key: str) -> bool:
        return False

    def record(self, *args: Any, **kwargs: Any) -> None:
        pass


def _as_declared(call: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """Declares a step of a Trainer to its monitor, except where ranks share out the data by collectives."""
    ours = (each for each in trainer.callback_handler.callbacks if isinstance(each, TrainerMonitor))
    monitor = next(ours, None)
    if monitor is None or not hasattr(trainer, "_next_batch") or trainer._uses_data_balance():
        return call(trainer, *args, **kwargs)
    return monitor.make(trainer, call, args, kwargs)


def put_first(make: Any = None) -> None:
    """Calls our callback before all others, so that no callback saves the result of a refused step; declares steps.

    mindformers puts callbacks of a yaml after its own, which save checkpoints.

    Args:
        make: Makes the monitor of a Trainer that has none; without it such a Trainer is left alone.
    """
    if _TRAINER not in sys.modules:
        return
    from mindformers.pynative.callback import CallbackHandler

    def first(init: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        ours = [each for each in self.callbacks if isinstance(each, StepMonitor)]
        if not ours and make is not None:
            ours = [make()]
        self.callbacks[:] = [*ours, *(each for each in self.callbacks if each not in ours)]

    patches.put_back(_GROUP)
    patches.wrap(CallbackHandler, "__init__", first, _GROUP)
    trainer = getattr(sys.modules.get(f"{_TRAINER}.trainer.trainer"), "Trainer", None)
    for name in (each for each in _STEPS if hasattr(trainer, each)):  # of version 1.9 only one
        patches.wrap(trainer, name, _as_declared, _GROUP)


def _as_one(model: Any) -> nn.Cell:
    """Returns the network; a cell around its parts where a rank has several stages of a pipeline."""
    parts = list(model) if isinstance(model, (list, tuple)) else [model]
    return parts[0] if len(parts) == 1 else nn.CellList(parts, auto_prefix=False)

"""Judges trainings by the Trainer of mindformers 2 in PyNative, which calls its callbacks in its own way."""

from __future__ import annotations

import sys
from typing import Any

from mindspore import nn

from asd.operators.monitor.step_monitor import StepMonitor
from asd.operators.private import patches
from asd.operators.private.boundary import shielded

_TRAINER = "mindformers.pynative"
_GROUP = "trainer"


class TrainerMonitor(StepMonitor):
    """`StepMonitor` as a callback of mindformers' Trainer, versions 1 and 2.

    Version 2 passes a callback its settings and its state, and all else by name. It has no place between gradients and
    optimizer, so the optimizer's own call is guarded, and each gradient is measured before it is clipped.
    """

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


def put_first(make: Any = None) -> None:
    """Calls our callback before all others, so that no callback saves the result of a refused step.

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


def _as_one(model: Any) -> nn.Cell:
    """Returns the network; a cell around its parts where a rank has several stages of a pipeline."""
    parts = list(model) if isinstance(model, (list, tuple)) else [model]
    return parts[0] if len(parts) == 1 else nn.CellList(parts, auto_prefix=False)

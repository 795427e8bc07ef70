"""Detection without a line of code: what `asd run` does inside the training process.

Everything that trains through `Model.train`, and so mindformers' Trainer, gets a `StepMonitor` among its callbacks. A
`TrainOneStepCell` that is called in a loop gets one of its own. A loop that uses neither, such as a jitted function
around `value_and_grad`, shows no place where a step ends: it is told so once, when the process ends.
"""

from __future__ import annotations

import atexit
import functools
import sys
from typing import Any

from mindspore import nn
from mindspore.train import Model

from asd.operators.loss_scale import LossScale
from asd.operators.slots import table
from asd.operators.step_monitor import StepMonitor

__all__ = ["start"]

_is_inside_model = False
_judged_anything = False


def start() -> None:
    """Switches detection on for the trainings of this process."""
    Model.train = _with_monitor(Model.train)
    nn.TrainOneStepCell.__call__ = _with_own_monitor(nn.TrainOneStepCell.__call__)
    atexit.register(_tell_if_unjudged)


def _with_monitor(train: Any) -> Any:
    @functools.wraps(train)
    def monitored(self: Model, epoch: int, train_dataset: Any, callbacks: Any = None, *args: Any, **kwargs: Any) -> Any:
        global _is_inside_model, _judged_anything
        given = [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
        if not any(isinstance(callback, StepMonitor) for callback in given):
            # First, so that no other callback saves or counts a step that was refused.
            given.insert(0, StepMonitor())
        _is_inside_model, _judged_anything = True, True
        try:
            return train(self, epoch, train_dataset, given, *args, **kwargs)
        finally:
            _is_inside_model = False

    return monitored


def _with_own_monitor(call: Any) -> Any:
    @functools.wraps(call)
    def monitored(self: nn.TrainOneStepCell, *args: Any, **kwargs: Any) -> Any:
        global _judged_anything
        if _is_inside_model:
            return call(self, *args, **kwargs)
        monitor = self.__dict__.get("_asd_monitor")
        if monitor is None:
            monitor = StepMonitor(loss_scale=LossScale.of(self))
            monitor.attach(self, self.optimizer)
            object.__setattr__(self, "_asd_monitor", monitor)
            _judged_anything = True
        outputs = call(self, *args, **kwargs)
        monitor.step(outputs)
        return outputs

    return monitored


def _tell_if_unjudged() -> None:
    if not _judged_anything and table().sites():
        print(
            "asd: nothing was judged: this training uses neither Model.train nor TrainOneStepCell."
            " Call StepMonitor.attach before its loop and StepMonitor.step after each step.",
            file=sys.stderr,
        )

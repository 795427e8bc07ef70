"""Detection without a line of code: finds the calls that end a step, and judges there."""

import contextlib
import functools
import gc
import inspect
import weakref
from collections.abc import Iterator
from typing import Any

from mindspore import nn
from mindspore.train import Model

from asd.operators.gate.slots import table
from asd.operators.gate.tap import drop_skipped
from asd.operators.monitor.step_monitor import StepMonitor
from asd.operators.private import patches
from asd.operators.private.boundary import wait_for_pynative
from asd.operators.private.class_swap import put_on
from asd.operators.private.compiler import executors, gradient_functions
from asd.operators.private.mended import mend_files
from asd.operators.private.names import find
from asd.operators.rerun.repeatable_step import is_known
from asd.operators.sensors.loss_scale import LossScale
from asd.operators.start.pynative_trainer import TrainerMonitor, put_first
from asd.operators.start.unwatched import OPTIMIZERS, Unwatched, judged_by

_MONITOR = "_asd_monitor"  # of a cell also a weak reference to the gate that judges it; of an optimizer False for none
_GROUP = "autostart"
_training = 0
_unwatched = Unwatched()


def start() -> None:
    """Judges every training of this process from now on, unless it has a `StepMonitor` already."""
    mend_files()
    for name in ("train", "fit"):
        patches.wrap(Model, name, _with_callback, _GROUP)
    for kind in filter(None, (nn.TrainOneStepCell, find("AutoParallel"))):
        patches.wrap(kind, "__call__", _with_own_monitor, _GROUP)
    for kind in OPTIMIZERS:
        patches.wrap(kind, "__init__", _around_init, _GROUP)
        patches.wrap(kind, "__call__", _around_optimizer, _GROUP)
    for kind in executors():
        patches.wrap(kind, "__call__", _look_after, _GROUP)
    for kind in gradient_functions():
        patches.wrap(kind, "__init__", _around_gradient, _GROUP)


def stop() -> None:
    """Undoes `start`; a training that runs already goes on as it is."""
    patches.put_back(_GROUP)


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    """Keeps inner places from judging while this one judges."""
    global _training
    _training += 1
    try:
        yield
    finally:
        _training -= 1


def _with_callback(train: Any, self: Model, *args: Any, **kwargs: Any) -> Any:
    bound = inspect.signature(train).bind_partial(self, *args, **kwargs)
    callbacks = bound.arguments.get("callbacks")
    given = [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    if not any(isinstance(callback, StepMonitor) for callback in given):
        # First, so that no other callback saves or counts a step that was refused.
        given.insert(0, StepMonitor())
    bound.arguments["callbacks"] = given
    with _inside():
        return train(*bound.args, **bound.kwargs)


def _around_init(init: Any, self: nn.Cell, *args: Any, **kwargs: Any) -> None:
    put_first(TrainerMonitor)  # a Trainer of mindformers 2 makes its optimizer before it collects its callbacks
    init(self, *args, **kwargs)
    _unwatched.optimizers.add(self)


def _look_after(call: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    outputs = call(self, *args, **kwargs)
    if not _training:
        _unwatched.look()
    return outputs


def _around_gradient(init: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Looks for unwatched updates; a gradient function is made in each PyNative step, and for each compilation."""
    _unwatched.takes_gradients = True
    _look_after(init, self, *args, **kwargs)


def _with_own_monitor(call: Any, self: nn.Cell, *args: Any, **kwargs: Any) -> Any:
    global _training
    trains = self.network if type(self).__name__ == "AutoParallel" else self
    if _training or not isinstance(trains, nn.TrainOneStepCell):
        return call(self, *args, **kwargs)
    monitor = vars(self).get(_MONITOR)
    gate = monitor() if isinstance(monitor, weakref.ref) else None
    if monitor.is_over if isinstance(monitor, StepMonitor) else gate is None or gate.is_free:
        optimizer = trains.optimizer
        monitor = getattr(optimizer, _MONITOR, None)  # of an earlier cell or loop with this optimizer
        gate = None if monitor and not monitor.is_over else judged_by(optimizer, trains)
        if gate is None:
            monitor = monitor or StepMonitor(loss_scale=LossScale.of(trains))
            monitor.attach(self, optimizer)
            object.__setattr__(optimizer, _MONITOR, monitor)
        object.__setattr__(self, _MONITOR, monitor if gate is None else weakref.ref(gate))
    if gate is not None:
        _training += 1  # as `_inside`, which takes four calls
        try:
            return call(self, *args, **kwargs)
        finally:
            _training -= 1
    with _inside():
        run = monitor.watch_step(self) if is_known(self) else functools.partial(call, self)
        outputs = run(*args, **kwargs)
        monitor.step(outputs)
    return outputs


def _around_optimizer(call: Any, self: nn.Cell, *args: Any, **kwargs: Any) -> Any:
    if _training:
        return call(self, *args, **kwargs)
    if getattr(self, _MONITOR, None) is None:
        gc.collect()  # `attach` is a collective: each rank has to know the same networks, whenever garbage is collected
        if judged_by(self) is None and not any(gate.sites and not gate.optimizers for gate in table().gates.others()):
            _leave_loops(self)
            if any(not site.watched_by and (site.owner or not site.claimed) for site in table().sites()):
                monitor = StepMonitor()
                monitor.attach(None, self)
                put_on(self, _judged(type(self), monitor))
                return self(*args, **kwargs)
        object.__setattr__(self, _MONITOR, False)
    return _look_after(call, self, *args, **kwargs)


def _leave_loops(optimizer: nn.Cell) -> None:
    """Takes check operators from loops that update weights of `optimizer`, which may have ended; they keep guards."""
    weights = getattr(optimizer, "parameters", ())
    for gate in [each for each in table().gates.others() if each.trains(weights)]:
        if any(getattr(type(each), _MONITOR, None) for each in gate.optimizers):
            for site in [each for each in gate.sites if not each.claimed]:
                gate.sites.remove(site)
                site.owner = None


def _judged(base: type, monitor: StepMonitor) -> type:
    """Returns a class of an optimizer whose every call, also a refused one, ends a judged step."""
    known = [0, 0]  # calls at the last update, and the fewest between two; more of them may be of a step without one

    class Judged(base):
        _asd_monitor = monitor

        def __call__(self, *args, **kwargs):
            if _training:
                return super().__call__(*args, **kwargs)
            is_others = monitor.is_over and judged_by(self) is not None
            if monitor.is_over and not is_others:
                monitor.attach(None, self)
            (before, least), known[0] = known, _unwatched.calls
            calls, dropped = known[0] - before, False
            with _inside():
                if calls > least and not is_others:
                    wait_for_pynative()
                    dropped = drop_skipped(judged_by(self), args[0] if args else next(iter(kwargs.values()), ()))
                if before and not dropped:  # before the first update all calls of the process count
                    known[1] = min(calls, least or calls)
                outputs = super().__call__(*args, **kwargs)
            if not is_others:
                monitor.step(outputs)
            return outputs

    return Judged

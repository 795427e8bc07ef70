"""Follows a training that is drilled: counts its steps, records losses, times and weights, and ends it after some."""

import atexit
import contextlib
import inspect
import json
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mindspore as ms
import safetensors.numpy
from mindspore import Parameter, Tensor, nn
from mindspore.communication import GlobalComm, get_rank
from mindspore.train import Callback, Model

from asd.config import Config
from asd.drill import TrainingPlan
from asd.errors import ConfigError
from asd.injection import Fault
from asd.operators.drill.inject import FaultInjector
from asd.operators.gate.slots import table
from asd.operators.monitor.step_monitor import StepMonitor
from asd.operators.monitor.training_watch import TrainingWatch
from asd.operators.private import patches
from asd.operators.private.compiler import executors
from asd.operators.private.layout import local
from asd.operators.private.names import find
from asd.operators.ranks.weights import hashes_of
from asd.operators.sensors.optimizer_state import FLOATS
from asd.operators.sensors.optimizers import updates_of
from asd.operators.start import autostart
from asd.operators.start.unwatched import OPTIMIZERS
from asd.rundir.disk import write_whole

_GROUP = "drill"
_LINGERS = 30.0  # seconds that threads and processes of the training may take after its last step
_SAMPLES = 4096  # numbers of all weights, by which two runs are compared where their bits differ


class TrainingFollower:
    """Follower of the training of this process.

    Args:
        plan: Steps to make, and the fault to inject.
    """

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._inside = self._process = 0
        self._began, self._last = time.perf_counter(), 0.0
        self._trained: list[nn.Cell] = []
        self._place = ""  # where steps end: the first place that was seen, but for a monitor in a loop
        self._losses: list[float | None] = []
        self._steps, self._first = 0, 0.0
        self._steps_of = Counter[int]()  # by each cell, optimizer and monitor
        self._seconds: list[float] = []
        self._injector: FaultInjector | None = None
        self._struck: TrainingWatch | None = None  # which judges what is struck, and numbers its steps

    def begin(self) -> None:
        """Puts hooks around every place where a step may end."""
        for name in ("train", "fit"):
            patches.wrap(Model, name, partial(self._around_train, inspect.signature(getattr(Model, name))), _GROUP)
        for kind in filter(None, (nn.TrainOneStepCell, find("AutoParallel"))):
            patches.wrap(kind, "__call__", partial(self._step_of, "cell"), _GROUP)
        for kind in OPTIMIZERS:
            patches.wrap(kind, "__init__", self._around_init, _GROUP)
            patches.wrap(kind, "__call__", partial(self._step_of, "optimizer"), _GROUP)
        patches.wrap(autostart, "_judged", self._around_class, _GROUP)
        for kind in executors():
            patches.wrap(kind, "__call__", self._around_compiled, _GROUP)
        patches.wrap(StepMonitor, "__init__", self._around_monitor, _GROUP)
        patches.wrap(StepMonitor, "step", self._around_judged, _GROUP)
        if self._plan.fault:
            self._injector = injector = FaultInjector(Fault.parse(self._plan.fault))
            patches.wrap(TrainingWatch, "attach", partial(self._around_attach, injector), _GROUP)
            patches.wrap(TrainingWatch, "_look", partial(self._around_look, injector), _GROUP)
        patches.wrap(safetensors.numpy, "serialize_file", _write_redirected, _GROUP)
        atexit.register(self.save)

    def _around_attach(self, injector: FaultInjector, attach: Any, watch: TrainingWatch, net: Any, *more: Any) -> None:
        """Puts the fault into a network that has its checks."""
        attach(watch, net, *more)
        if not injector.where:
            with contextlib.suppress(ConfigError):  # it has no such place, and nothing is struck
                injector.attach(net if net is not None else watch._optimizer, watch._optimizer)
                injector.begin_step()
                self._struck = watch

    def _around_look(self, injector: FaultInjector, look: Any, watch: TrainingWatch, *args: Any) -> Any:
        """Strikes what an update has written before the step is judged, but not what a rerun of it writes."""
        if watch is self._struck and watch._made is None:
            injector.end_update(watch._step + 1)
        return look(watch, *args)

    def _around_train(self, signature: inspect.Signature, train: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        callbacks = bound.arguments.get("callbacks")
        given = [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
        bound.arguments["callbacks"] = [*given, _StepEnds(self)]
        self._inside += 1
        try:
            return train(*bound.args, **bound.kwargs)
        finally:
            self._inside -= 1

    def _around_init(self, init: Any, optimizer: nn.Cell, *args: Any, **kwargs: Any) -> None:
        init(optimizer, *args, **kwargs)
        if not self._place:
            self._trained.append(optimizer)

    def _around_class(self, judged: Any, *args: Any) -> Any:
        """Counts calls of an optimizer with a monitor of its own once they are judged, and refused ones too."""
        kind = judged(*args)
        patches.wrap(kind, "__call__", partial(self._step_of, "optimizer"), _GROUP)
        return kind

    def _around_monitor(self, init: Any, monitor: Any, config: Config | None = None, **kwargs: Any) -> None:
        """Has a monitor with settings of its own detect and report as the drill wants it."""
        if config is not None:
            names = ("enable", "run_dir", "run", "on_anomaly")[: 4 if self._plan.fault else 3]
            config = replace(config, **{name: getattr(Config.of_process(), name) for name in names})
        init(monitor, config, **{**kwargs, "sinks": None})

    def _around_judged(self, judge: Any, monitor: Any, outputs: Any = None) -> Any:
        """Counts a step of a loop once it is judged, and a refused one too, which no other place sees."""
        events = judge(monitor, outputs)
        if not self._inside and self._place != "callback":
            if self._place != "monitor":  # another place has counted, without losses
                self._steps, self._losses, self._seconds = 0, [], []
            self._place = "monitor"
            self.end_step(outputs, part=monitor)
        return events

    def _around_compiled(self, call: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        """Counts the call of a compiled function as a step, if it made an update."""
        is_step = not self._inside and self._place in ("", "compiled") and not table().replaying
        before = [(each, updates_of(each)) for each in self._trained] if is_step else []
        outputs = call(graph, *args, **kwargs)
        if updated := [each for each, updates in before if updates_of(each) > updates]:
            self._place = "compiled"
            self.end_step(outputs, part=updated[0])
        return outputs

    def _step_of(self, place: str, call: Any, cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        is_step = not self._inside and self._place in ("", place) and not table().replaying
        self._inside += is_step
        try:
            outputs = call(cell, *args, **kwargs)
        finally:
            self._inside -= is_step
        if is_step:
            self._place = place
            if cell not in self._trained:
                self._trained.append(cell)
            self.end_step(outputs if place == "cell" else None, part=cell)
        return outputs

    def watch(self, network: nn.Cell) -> None:
        """Notes the network whose weights are compared in the end."""
        self._place, self._trained = "callback", [network]

    def end_step(self, outputs: Any, made: int = 1, part: Any = None) -> None:
        """Records a step, or several of sunk data; ends the training after the last one.

        Of parts that are trained in turn, as those of a GAN, the one that makes the most steps counts.
        """
        if self._steps >= self._plan.steps:
            raise SystemExit(0)  # a bare `except` has let the training go on
        self._steps_of[id(part)] += made
        if self._steps_of[id(part)] <= self._steps:
            return
        self._process = os.getpid()
        while isinstance(outputs, (tuple, list)) and outputs:
            outputs = outputs[0]
        loss = float(outputs.asnumpy().reshape(-1)[0]) if isinstance(outputs, Tensor) else None
        now = time.perf_counter()
        if self._steps:
            self._seconds.append((now - self._last) / made)
        else:
            self._first = now - self._began
        self._last = now
        self._losses.append(loss)
        self._steps += made
        if self._steps >= self._plan.steps:
            self.save(ended=True)
            lingers = threading.Timer(_LINGERS, os._exit, (0,))
            lingers.daemon = True
            lingers.start()
            raise SystemExit(0)  # no `except Exception` of the training stops that
        if self._injector is not None and self._injector.where:
            step, fault = self._steps + 1, self._injector.fault
            if fault.step in range(step, step + made):  # it strikes from the first step of the call on
                self._injector.fault = replace(fault, step=step)
            self._injector.begin_step(step)

    def save(self, *, ended: bool = False) -> None:
        """Writes the record of this rank, once; nothing if no step was seen, or in a process that was forked."""
        if not self._steps or os.getpid() != self._process:
            return
        atexit.unregister(self.save)
        rank = get_rank() if GlobalComm.INITED else 0
        weights = _weights(self._trained)
        record = {
            "rank": rank,
            "ended": ended,
            "steps": self._steps,
            "place": self._place,
            "mode": "graph" if ms.get_context("mode") == ms.GRAPH_MODE else "pynative",
            "device": ms.get_context("device_target"),
            "seeded": ms.get_seed() is not None,
            "losses": self._losses,
            "seconds": self._seconds,
            "first": self._first,
            "memory": _memory(),
            "hash": hashes_of(weights),
            "sample": _sample(weights),
            "struck": [each._asdict() for each in self._injector.changes] if self._injector is not None else [],
        }
        write_whole(Path(self._plan.folder, f"record-rank{rank}.json"), json.dumps(record))


class _StepEnds(Callback):
    """Callback that comes last, so that a step is over when it is called."""

    def __init__(self, follower: TrainingFollower) -> None:
        super().__init__()
        self._follower, self._made = follower, 0

    def on_train_step_end(self, run_context: Any) -> None:
        """Ends a step, or a call with several steps of sunk data."""
        training = run_context.original_args()
        now = int(training.cur_step_num)
        made, self._made = max(1, now - self._made), now
        self._follower.watch(training.train_network)
        self._follower.end_step(training.net_outputs, made)


def _write_redirected(write: Any, tensors: Any, path: Any, *args: Any, **kwargs: Any) -> None:
    with open(path, "wb") as file:  # which is redirected, but not what Rust opens
        write(tensors, file.name, *args, **kwargs)


def _weights(cells: Iterable[Any]) -> list[Parameter]:
    """Returns all weights and states of the optimizer, by name."""
    found = {id(each): each for cell in cells for each in (*cell.get_parameters(), *getattr(cell, "parameters", ()))}
    return sorted((each for each in found.values() if local(each).size), key=lambda each: each.name)


def _sample(weights: list[Parameter]) -> list[float]:
    floats = [each for each in weights if each.dtype in FLOATS]
    most = max(1, _SAMPLES // max(1, len(floats)))
    flats = (local(each).asnumpy().reshape(-1) for each in floats[:_SAMPLES])
    return [float(each) for flat in flats for each in flat[:: -(-flat.size // most)]]


def _memory() -> int:
    """Returns the most bytes that were used: of the device where it has memory of its own, else of this process."""
    if ms.get_context("device_target") != "CPU":
        return int(ms.runtime.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def begin(folder: str) -> None:
    """Begins to follow the training of this process."""
    TrainingFollower(TrainingPlan.load(folder)).begin()

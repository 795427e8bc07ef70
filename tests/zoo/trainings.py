"""One training of a kind, in one precision, with or without monitors, with or without a fault."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from faults import Strike, products, put_behind
from gan import Gan
from kinds import KINDS, Batch, Kind
from mindspore import Parameter, Tensor, amp, nn, ops
from mindspore.train import Callback, Model
from networks.language import RMSNorm
from steps import DynamicStep, Step, jit_forward, jit_step, python_loop

from asd import AnomalyDetected
from asd.operators import StepMonitor
from benchmarks._host_fault import gradient_fault, numpy_operator

STEPS, BAD = 20, 18
EPOCHS = 2
MODES = {"graph": ms.GRAPH_MODE, "pynative": ms.PYNATIVE_MODE}
NORMS = (nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm, nn.Embedding, RMSNorm)
IN_FLOAT32 = (RMSNorm,)
"""Stay in float32 in a network that is cast to float16: inside such a cell PyNative casts what was cast to float32 back
to float16 before each operator, and the gradient of a root there, x ** -3, is infinite for the x of an embedding."""
PARTS = {"anew": 2, "resumed": 2}
"""Styles in which network, optimizer and monitor are made more than once, as in a notebook."""
BY_CALLBACK = ("model", "fit", "sink", "processes")

State = dict[str, tuple[str, bytes]]


class Outer(nn.Cell):
    """A network whose output is float32; `place` is where a gradient may be struck."""

    def __init__(self, network: nn.Cell, strike: Strike | None = None) -> None:
        super().__init__()
        self.network = network
        self.place = gradient_fault(strike) if strike is not None else nn.Identity()

    def construct(self, x):
        return self.place(ops.cast(self.network(x), ms.float32))


class WithLoss(nn.Cell):
    """A network and its loss."""

    def __init__(self, outer: nn.Cell, loss: nn.Cell) -> None:
        super().__init__()
        self.outer, self.loss = outer, loss

    def construct(self, x, y):
        return self.loss(self.outer(x), y)


class Fault:
    """Where it strikes: `target` is `gradient` or `weight gradient`, and `which` chooses a place."""

    def __init__(self, target: str, factor: float, which: int) -> None:
        self.target, self.which, self.strike, self.where = target, which, Strike(BAD, factor), "the network's output"

    def idle(self) -> Fault:
        """At the same place one that never strikes: its operator there is one more, which float16 may round behind."""
        fault = Fault(self.target, 1.0, self.which)
        fault.strike.step = 0
        return fault

    def __str__(self) -> str:
        return f"{self.target} of {self.where}: {self.strike.told or 'never struck'}"


class Training:
    """What a training leaves.

    Args:
        monitor: None, or a function that makes one: it gets the loss scaler or None.
        wrapped: Whether each product has one more, empty, level of code around it.

    Attributes:
        losses: Of each step, as bytes.
        before: Weights and state of the optimizer before step `BAD`.
        behind: The same behind it.
        after: The same in the end.
        norms: How many norms and embeddings it has.
        weights: How many Parameters are trained.
        ended_by: The anomaly that ended it, or None.
        monitors: One, or the generator's and the discriminator's; the last one first, where they are made again.
        parts: How often all is made.
        bad: The fault's step, as the monitor counts.
    """

    def __init__(
        self,
        kind: str,
        precision: str,
        monitor: Callable[[Any], StepMonitor] | None = None,
        fault: Fault | None = None,
        *,
        wrapped: bool = False,
    ) -> None:
        ms.set_seed(7)
        np.random.seed(7)  # noqa: NPY002 - the generator that nets draw from
        self.kind, self.precision, self.fault = KINDS[kind], precision, fault
        self._wrapped = wrapped
        self.losses: list[bytes] = []
        self.before: State = {}
        self.behind: State = {}
        self.ended_by: AnomalyDetected | None = None
        self._held: list[nn.Cell] = []
        self._written: tuple[nn.Cell, ...] = ()
        self._writer = self.kind.writer() if self.kind.writer is not None else None
        self.norms = self.weights = 0
        random = np.random.default_rng(7)
        self.batches = [self.kind.batch(random) for _ in range(STEPS)]
        dynamic = precision == "dynamic"
        self.scaler = amp.DynamicLossScaler(2.0**10, 2, 1000) if dynamic else None
        scale = self.scaler if dynamic else (self.kind.scale if self.kind.scale != 1.0 else None)
        style = self.kind.style
        self.parts, self.bad = PARTS.get(style, 1), BAD - STEPS // 2 * (style == "anew")
        self._make_monitors = lambda: [] if monitor is None else [monitor(scale) for _ in range(1 + (style == "gan"))]
        self.monitors: list[StepMonitor] = []
        try:
            self._train()
        except AnomalyDetected as anomaly:
            self.ended_by = anomaly
        finally:
            for each in self.monitors:
                each.close()
        self.after = self.state()

    @property
    def failure(self) -> str:
        """Why it is no training; empty where it is one."""
        if not all(np.isfinite(np.frombuffer(each, np.float32)).all() for each in self.losses):
            return "its own losses are not finite"
        tensors = [name for name, (_, held) in self.after.items() if len(held) > 8]  # not counters and powers of beta
        if all(self.before[name] == self.after[name] for name in tensors):
            return "its weights stay as they are: all gradients overflow or underflow, at every loss scale"
        return ""

    @property
    def draws(self) -> bool:
        """Whether a dropout draws from MindSpore's own stream."""
        cells = [cell for held in self._held for _, cell in held.cells_and_names()]
        return any(isinstance(cell, nn.Dropout) and cell.p > 0 for cell in cells)

    def state(self) -> State:
        """Weights and state of the optimizers, bit for bit; 0 and 1 are what the first monitor judges."""
        held: dict[str, Parameter] = {}
        for i, cell in enumerate(self._held):
            held |= {f"{i} {parameter.name}": parameter for parameter in cell.get_parameters()}
        arrays = {name: parameter.asnumpy() for name, parameter in held.items()}
        return {name: (array.dtype.name, array.tobytes()) for name, array in arrays.items()}

    def begin(self) -> None:
        """Says that the next step begins; writes what the program writes before it."""
        number = len(self.losses) + 1
        if number == BAD + 1:
            self.behind = self.state()
        if self._writer is not None:
            self._writer(number, *self._written, self.monitors)
        if number == BAD:
            self.before = self.state()
        if self.fault is not None:
            self.fault.strike.now = number

    def end(self, loss: Any) -> None:
        """Records its loss."""
        self.losses.append(loss.asnumpy().tobytes())

    def outer(self, make: Callable[[], nn.Cell], *, struck: bool = True) -> nn.Cell:
        """A network in this training's precision, with the fault if it is the one that is struck."""
        network = make()
        cells = [cell for _, cell in network.cells_and_names()]
        self.norms += sum(isinstance(cell, NORMS) for cell in cells)
        if self.precision in ("float16", "dynamic"):
            network.to_float(ms.float16)
            for cell in cells:
                if isinstance(cell, IN_FLOAT32):
                    cell.to_float(ms.float32)
        elif self.precision != "float32":
            network = amp.auto_mixed_precision(network, self.precision, ms.float16)
        fault = self.fault if struck else None
        return Outer(network, fault.strike if fault is not None and fault.target == "gradient" else None)

    def _wrap(self, *networks: nn.Cell) -> None:
        for each in networks if self._wrapped else ():
            wrap_products(each)

    def _train(self) -> None:
        kind = self.kind
        if kind.style == "gan":
            self.monitors = self._make_monitors()
            gan = Gan(self)
            self._wrap(*gan.networks)
            self._held = [gan.networks[0], gan.optimizers[0], gan.networks[1], gan.optimizers[1]]
            self.weights = sum(len(each.parameters) for each in gan.optimizers)
            gan.train()
            return
        size = STEPS // self.parts
        for begin in range(0, STEPS, size):
            self._train_part(kind, self.batches[begin : begin + size])

    def _train_part(self, kind: Kind, batches: Sequence[Batch]) -> None:
        earlier, monitors = self._held, self._make_monitors()
        self.monitors[:0] = monitors
        outer, loss = self.outer(kind.network), kind.loss()
        cell = WithLoss(outer, loss)
        cell.set_train()
        self._wrap(cell)
        optimizer = kind.optimizer(cell.trainable_params())
        self._held, self._written = [cell, optimizer], (loss, optimizer)
        self.weights = len(optimizer.parameters)
        if earlier and kind.style == "resumed":
            with tempfile.TemporaryDirectory() as folder:
                ms.save_checkpoint(earlier[1], f"{folder}/kept.ckpt")
                for each in self._held:
                    ms.load_param_into_net(each, ms.load_checkpoint(f"{folder}/kept.ckpt"))
        if kind.style in BY_CALLBACK:
            self._by_callback(kind, outer, loss, optimizer)
            return
        for monitor in monitors:
            monitor.attach(None if kind.style == "functional" else cell, optimizer)
        step = self._step_of(kind, cell, optimizer)
        for monitor in monitors:
            step = monitor.watch_step(step)
        for x, y in batches:
            self.begin()
            loss = step(Tensor(x), Tensor(y))
            for monitor in monitors:
                monitor.step(loss)
            self.end(loss)

    def _step_of(self, kind: Kind, cell: nn.Cell, optimizer: nn.Cell) -> Callable[..., Any]:
        fault: dict[str, Any] = {}
        if self.fault is not None and self.fault.target == "weight gradient":
            weights = optimizer.parameters
            at = self.fault.which % len(weights)
            self.fault.where = weights[at].name
            fault = {"fault": numpy_operator(self.fault.strike), "struck": at}
        if self.scaler is not None:
            return DynamicStep(cell, optimizer, self.scaler)
        if kind.style == "cell":
            return nn.TrainOneStepCell(cell, optimizer)
        if kind.style == "jit":
            return jit_forward(cell, optimizer)
        if kind.style in ("jitstep", "functional"):
            return jit_step(cell, optimizer)
        if kind.style == "loop" and ms.get_context("mode") == ms.PYNATIVE_MODE:
            return python_loop(cell, optimizer, scale=kind.scale, **fault)
        parts = 2 if kind.style == "accumulation" else 1
        return Step(cell, optimizer, scale=kind.scale, clip=kind.style == "clipping", parts=parts, **fault)

    def _by_callback(self, kind: Kind, outer: nn.Cell, loss: nn.Cell, optimizer: nn.Cell) -> None:
        rows = self.batches[: STEPS // EPOCHS]
        more = {"num_parallel_workers": 2, "python_multiprocessing": True} if kind.style == "processes" else {}
        data = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False, **more)
        options: dict[str, Any] = {"metrics": {"loss"}} if kind.style == "fit" else {}
        if self.scaler is not None:
            options["loss_scale_manager"] = amp.DynamicLossScaleManager(2**10, 2, 1000)
        elif kind.scale != 1.0:
            options["loss_scale_manager"] = amp.FixedLossScaleManager(kind.scale, drop_overflow_update=False)
        model = Model(outer, loss, optimizer, **options)
        calls = {"callbacks": [*self.monitors, _Recorder(self)], "dataset_sink_mode": kind.style == "sink"}
        if kind.style == "fit":
            evaluation = ms.dataset.GeneratorDataset(self.batches[-4:], ["x", "y"], shuffle=False)
            model.fit(EPOCHS, data, evaluation, **calls)
        else:
            model.train(EPOCHS, data, **calls)


class _Idle(nn.Cell):
    """Reads its argument by an operator of MindSpore, and hands it on when that is done."""

    def construct(self, x):
        return ops.depend(ops.stop_gradient(x), ops.stop_gradient(x).sum())

    def bprop(self, x, out, dout):
        return (dout,)


def wrap_products(network: nn.Cell) -> None:
    """Puts what checks nothing behind each layer that has a product."""
    for _, cell in products(network):
        put_behind(cell, _Idle())


class _Recorder(Callback):
    def __init__(self, training: Training) -> None:
        super().__init__()
        self.training = training

    def on_train_step_begin(self, run_context: Any) -> None:
        self.training.begin()

    def on_train_step_end(self, run_context: Any) -> None:
        self.training.end(run_context.original_args().net_outputs)

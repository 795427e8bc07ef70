"""Puts a fault into a network that is being trained, for drills on the CPU."""

import functools
import logging
import re
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import GlobalComm, get_rank
from mindspore.train import Callback

from asd.errors import ConfigError, UnsupportedError
from asd.injection import Change, Fault
from asd.operators.gate.slots import table
from asd.operators.gate.tap import InsertGradientOf
from asd.operators.sensors.install import check_operators

_LOG = logging.getLogger("asd.injection")


class FaultInjector(Callback):
    """Callback that makes `fault` happen; it comes after `StepMonitor` in the list.

    In a loop of your own, call `attach` before the first step and `begin_step` before each.

    Args:
        fault: What to do, where and when.
        first_step: Number of the first step, for a training that is resumed.

    Attributes:
        changes: Every corruption that has been made.
        where: Name of the checkpoint or parameter it strikes, once `attach` was called; of several the first.
    """

    def __init__(self, fault: Fault, first_step: int = 1) -> None:
        super().__init__()
        self.fault = fault
        self.changes: list[Change] = []
        self.where = ""
        self._rank = get_rank() if GlobalComm.INITED else 0
        self._step = first_step - 1
        self._calls = 0
        self._weights: dict[str, Parameter] = {}

    def attach(self, net: nn.Cell) -> str:
        """Finds the place in `net`, which has its checks already but is not compiled yet, and returns its name.

        Raises:
            ConfigError: No checkpoint or parameter has such a name.
            UnsupportedError: The device is not the CPU.
        """
        if ms.get_context("device_target") != "CPU":
            raise UnsupportedError(f"faults can be injected on the CPU only, not on {ms.get_context('device_target')}.")
        if self.fault.target == "weight":
            places: dict[str, Any] = {parameter.name: parameter for parameter in net.trainable_params()}
        else:
            places = _taps(net, operators=self.fault.target == "gradient")
        chosen = self._choose(places)
        self.where = chosen[0]
        if self.fault.target == "weight":
            self._weights = {name: places[name] for name in chosen}
            return self.where
        for name in chosen:
            strike = functools.partial(self._strike, where=name)
            place, attribute = places[name]
            faulty = _Faulty(getattr(place, attribute), strike, on_gradient=self.fault.target == "gradient")
            setattr(place, attribute, faulty)
        return self.where

    def begin_step(self) -> None:
        """Counts the step, and strikes a weight if it is its turn."""
        self._step += 1
        if self.fault.is_active(self._step, self._rank):
            for name, weight in self._weights.items():
                before = weight.asnumpy()
                after = self._strike(before, where=name)
                if after is not before:
                    weight.copy_(Tensor(after))

    def on_train_begin(self, run_context: Any) -> None:
        """Finds the site of the fault in the network that is about to be trained."""
        if not self.where:
            self.attach(run_context.original_args().train_network)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Begins a step of `Model.train`."""
        self.begin_step()

    def _choose(self, places: dict[str, Any]) -> list[str]:
        found = [name for name in places if re.search(self.fault.where, name)]
        if not found:
            raise ConfigError(
                "fault where", self.fault.where, f"it must be an expression that matches one of {', '.join(places)}"
            )
        return found if self.fault.chance < 1 else found[:1]

    def _strike(self, array: np.ndarray, *, where: str) -> np.ndarray:
        if not self.fault.is_active(self._step, self._rank):
            return array
        self._calls += 1
        fault = self.fault.of_call(self._calls)
        if fault is None:
            return array
        if table().replaying:
            # Hardware that failed in one step only is well again, other hardware fails in every run of it.
            return array if self.fault.duration == 1 else fault.apply(array, self._step)
        faulty = fault.apply(array, self._step)
        change = fault.changes(array, faulty, self._step, where)
        self.changes.append(change)
        _LOG.info("fault %s struck: %s", fault, change)
        return faulty


def _taps(net: nn.Cell, *, operators: bool) -> dict[str, tuple[Any, str]]:
    """Returns the object that holds the tap of each checkpoint, and the attribute it is in, by the checkpoint's name.

    Args:
        net: The network.
        operators: Whether to include check operators, which check a layer's input; else only cells with a tap, which
            check its output.
    """
    holders: list[tuple[Any, str]] = []
    for _, cell in net.cells_and_names():
        if getattr(cell, "asd_tap", None) is not None:
            holders.append((cell, "asd_tap"))
        if operators:
            holders += [(operator.check_op, "tap") for _, operator in check_operators(cell)]
    return {getattr(*holder).site.name: holder for holder in holders}


class _Faulty(nn.Cell):
    """Tap with a fault after it."""

    def __init__(self, tap: Any, strike: Callable[[np.ndarray], np.ndarray], *, on_gradient: bool) -> None:
        super().__init__(auto_prefix=False)
        self.site = tap.site
        self.tap = tap
        self.fault = gradient_fault(strike) if on_gradient else _OutputFault(strike)

    def construct(self, x):
        return self.fault(self.tap(x))


def numpy_operator(strike: Callable[[np.ndarray], np.ndarray]) -> ops.Custom:
    """Returns an operator that lets `strike` change an array within a step, in both modes; CPU only."""

    def corrupt(array: np.ndarray) -> np.ndarray:
        return strike(array)

    return ops.Custom(corrupt, out_shape=lambda shape: shape, out_dtype=lambda dtype: dtype, func_type="pyfunc")


def gradient_fault(strike: Callable[[np.ndarray], np.ndarray]) -> nn.Cell:
    """Returns an identity whose gradient `strike` changes, in graph mode and PyNative alike; CPU only."""
    return _GradientFault(strike)


class _GradientFault(nn.Cell):
    def __init__(self, strike: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__(auto_prefix=False)
        corrupt = numpy_operator(strike)

        def in_graph(gradient):
            return corrupt(gradient)

        self.insert = InsertGradientOf(in_graph)
        self.hook = ops.HookBackward(lambda gradients: Tensor(strike(gradients[0].asnumpy())))

    def __call__(self, x):
        return super().__call__(x) if ms.get_context("mode") == ms.GRAPH_MODE else self.hook(x)

    def construct(self, x):
        return self.insert(x)


class _OutputFault(nn.Cell):
    """Corrupts its input and leaves the gradient unchanged."""

    def __init__(self, strike: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__(auto_prefix=False)
        self.corrupt = numpy_operator(strike)

    def construct(self, x):
        return self.corrupt(x)

    def bprop(self, x, out, dout):
        return (dout,)

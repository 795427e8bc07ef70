"""Puts a fault into a network that is being trained, for drills."""

import logging
import re
from typing import Any

from mindspore import Parameter, nn
from mindspore.communication import GlobalComm, get_rank
from mindspore.train import Callback

from asd.errors import ConfigError
from asd.injection import Change, Fault
from asd.operators.drill.strike import DeviceFault, StruckGradient, StruckOutput
from asd.operators.sensors.install import check_operators
from asd.operators.sensors.optimizer_state import FLOATS
from asd.operators.sensors.own_gradients import reducer_of, weights_of

_LOG = logging.getLogger("asd.injection")


class FaultInjector(Callback):
    """Callback that makes `fault` happen; it comes after `StepMonitor` in the list.

    In a loop of your own, call `attach` before the first step and `begin_step` before each. What it changes is changed
    on the device, see `asd.operators.drill.strike`.

    Args:
        fault: What to do, where and when.
        first_step: Number of the first step, for a training that is resumed.

    Attributes:
        where: Name of the checkpoint or parameter it strikes, once `attach` was called; of several the first.
    """

    def __init__(self, fault: Fault, first_step: int = 1) -> None:
        super().__init__()
        self.fault = fault
        self.where = ""
        self._changes: list[Change] = []
        self._rank, self._step = 0, first_step - 1
        self._strikes: list[DeviceFault] = []
        self._weights: list[Parameter] = []

    @property
    def changes(self) -> list[Change]:
        """Returns the last change of each tensor in each step; it waits for the step that runs."""
        for strike in self._strikes:
            change = strike.told(self._step)
            if change is not None:
                self._changes.append(change)
                _LOG.info("fault %s struck: %s", self.fault, change)
        return self._changes

    def attach(self, net: nn.Cell, optimizer: nn.Cell | None = None) -> str:
        """Finds the place in `net`, which has its checks already but is not compiled yet, and returns its name.

        Args:
            net: The network.
            optimizer: The optimizer, for faults of its state.

        Raises:
            ConfigError: No checkpoint or parameter has such a name.
        """
        self._rank = get_rank() if GlobalComm.INITED else 0  # a drill makes this before the job has ranks
        target, places = self.fault.target, dict[str, Any]()
        if target in ("gradient", "output"):
            # Where operators are checked, not layers, the output is what the operator is called with.
            places = taps(net, operators=target == "gradient") or taps(net)
        elif target == "sum":
            reducer = reducer_of(net, optimizer) if optimizer is not None else None
            if getattr(reducer, "asd_links", None) is not None:
                names = [weight.name for weight in weights_of(reducer, optimizer, net)]
                places = {name: (reducer, i) for i, name in enumerate(names)}
        elif target == "moment":
            own = optimizer.get_parameters() if optimizer is not None else ()
            trained = {id(weight) for weight in getattr(optimizer, "parameters", ())}
            places = {
                each.name: each for each in own if id(each) not in trained and each.dtype in FLOATS and each.size > 1
            }
        else:
            places = {each.name: each for each in net.trainable_params() if each.dtype in FLOATS and each.size > 0}
        chosen = self._choose(places)
        self.where = chosen[0]
        for name in chosen:
            strike = DeviceFault(self.fault, name)
            self._strikes.append(strike)
            if target in ("gradient", "output"):
                place, attribute = places[name]
                kind = StruckGradient if target == "gradient" else StruckOutput
                setattr(place, attribute, Faulty(getattr(place, attribute), kind(strike)))
            elif target == "sum":
                reducer, index = places[name]
                reducer.asd_links = WrongSum(reducer.asd_links, index, strike)
            else:
                self._weights.append(places[name])
        return self.where

    def begin_step(self, step: int | None = None) -> None:
        """Counts the step, or takes its number, and strikes a weight or a state of the optimizer if it is its turn."""
        self.changes  # noqa: B018 - of the step before
        self._step = self._step + 1 if step is None else step
        for strike in self._strikes:
            strike.arm(active=self.fault.is_active(self._step, self._rank))
        if self.fault.target != "update":
            self._strike_weights()

    def end_update(self, number: int) -> None:
        """Strikes what the optimizer has just written, if it is its turn; the changes of the step get its `number`."""
        if self.fault.target == "update":
            self._strike_weights()
        self._step = number

    def _strike_weights(self) -> None:
        if self._weights and self.fault.is_active(self._step, self._rank):
            for strike, weight in zip(self._strikes, self._weights, strict=True):
                weight.copy_(strike.construct(weight * 1))  # at once: no graph of its own to compile

    def on_train_begin(self, run_context: Any) -> None:
        """Finds the site of the fault in the network that is about to be trained."""
        if not self.where:
            training = run_context.original_args()
            self.attach(training.train_network, training.get("optimizer"))

    def on_train_step_begin(self, run_context: Any) -> None:
        """Begins a step of `Model.train`."""
        self.begin_step()

    def _choose(self, places: dict[str, Any]) -> list[str]:
        found = [name for name in places if re.search(self.fault.where, name)]
        if not found:
            raise ConfigError(
                "fault where", self.fault.where, f"it must be an expression that matches one of {', '.join(places)}"
            )
        if self.fault.where == ".":  # anywhere
            return [found[self.fault.seed % len(found)]]
        return found if self.fault.chance < 1 else found[:1]


def taps(net: nn.Cell, *, operators: bool = True) -> dict[str, tuple[Any, str]]:
    """Returns object and attribute of each tap by its name: of layers' outputs, with `operators` also of inputs."""
    holders: list[tuple[Any, str]] = []
    for _, cell in net.cells_and_names():
        if getattr(cell, "asd_tap", None) is not None:
            holders.append((cell, "asd_tap"))
        if operators:
            holders += [(operator.check_op, "tap") for _, operator in check_operators(cell)]
    return {getattr(*holder).site.name: holder for holder in holders}


class WrongSum(nn.Cell):
    """Check of a reducer, before which one of the sums is struck."""

    def __init__(self, links: nn.Cell, index: int, strike: DeviceFault) -> None:
        super().__init__(auto_prefix=False)
        self.links, self.index, self.strike = links, index, strike

    def construct(self, gradients, reduced):
        """Returns the sums, one of them struck."""
        wrong = (*reduced[: self.index], self.strike(reduced[self.index]), *reduced[self.index + 1 :])
        return self.links(gradients, wrong)


class Faulty(nn.Cell):
    """Tap with a fault after it."""

    def __init__(self, tap: Any, fault: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.site, self.tap, self.fault = tap.site, tap, fault

    def construct(self, x):
        """Returns what the fault makes of the tap's result."""
        return self.fault(self.tap(x))

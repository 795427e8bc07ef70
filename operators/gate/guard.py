"""The guard: an optimizer that does not apply an update while a checked value breaks its limit.

The decision is made on the device, in the same step: when the gradients are ready all taps have written their slots,
and the gate compares them with the limits the host wrote after the step before. A refused step leaves every parameter
and every state of the optimizer as it was, because the optimizer is not run at all. What it left in the slots is set
aside for the host, so that the next step is judged by its own values, whether or not the host has read by then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.communication import GlobalComm, get_group_size
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.errors import ConfigError
from asd.measured.reading import AVERAGED, WEIGHT_GRADIENT
from asd.operators.measure.look import make_observer
from asd.operators.measure.tap import kernel_function
from asd.operators.private.class_swap import put_on
from asd.operators.ranks.shards import hold_the_same, shares_gradients
from asd.operators.table.gate import Gate
from asd.operators.table.guard_state import GuardState
from asd.operators.table.message import WIDTH
from asd.operators.table.operator_table import OperatorTable
from asd.operators.table.site import Site
from asd.operators.table.slots import by_backend, table

__all__ = ["are_averaged", "gradient_sites", "guard", "is_guarded"]

_numbers = itertools.count()


def guard(optimizer: nn.Cell, *, gradients: bool = False, lower: bool = False) -> nn.Cell:
    """Makes `optimizer` refuse an update while a checked value breaks its limit or is not finite.

    The limits are those that a `StepMonitor` writes after each step; until one is attached nothing is refused. In data
    parallel all ranks refuse together: a few numbers go through an all-reduce. The optimizer is changed in
    place, and keeps its class name, attributes and parameters. Do it before the first step, for a compiled graph does
    not change.

    Args:
        optimizer: Any optimizer that is called with a tuple of gradients.
        gradients: Whether the gradients it is called with are checked too, each under the name of its Parameter; in
            data parallel, where they are means over the ranks, with `averaged.` before it.
        lower: Whether there will be lower limits too.

    Returns:
        `optimizer` itself.

    Raises:
        ConfigError: `optimizer` is not a Cell.
    """
    if not isinstance(optimizer, nn.Cell):
        raise ConfigError(
            "optimizer", type(optimizer).__name__, "valid is an optimizer of mindspore.nn, mint or mindformers"
        )
    if is_guarded(optimizer):
        return optimizer
    base = type(optimizer)

    class Guarded(base):  # type: ignore[valid-type, misc]
        def construct(self, gradients, *args):
            refused = self.asd_gate(gradients)
            # The optimizer runs in one branch only; both return a tensor, for a graph has one type of result.
            if refused > 0:
                result = self.asd_set_aside(refused)
            else:
                result = F.depend(refused, super().construct(gradients, *args))
            return result

        def __call__(self, *args, **kwargs):
            result = super().__call__(*args, **kwargs)
            self.asd_gate.after_update()
            return result

    slots = table()
    weights = getattr(optimizer, "parameters", ()) if gradients else ()
    prefix, kind = ("averaged.", AVERAGED) if are_averaged() else ("", WEIGHT_GRADIENT)
    sites = [slots.new_site(prefix + weight.name, kind) for weight in weights]
    for site in sites:
        site.claimed = True
    gate: _Gate = by_backend(
        kernel=lambda _: _KernelGate(sites), operators=lambda each: _OperatorGate(each, sites, lower=lower)
    )
    gate.belong_to(slots.gates.default)
    optimizer.asd_gate, optimizer.asd_set_aside = gate, gate.set_aside
    put_on(optimizer, Guarded)
    return optimizer


def is_guarded(optimizer: nn.Cell) -> bool:
    """Whether `guard` was called on `optimizer`."""
    return getattr(optimizer, "asd_gate", None) is not None


def are_averaged() -> bool:
    """Whether optimizers are called with means over several ranks that hold the same."""
    return _ranks() > 1 and shares_gradients()


def gradient_sites(optimizer: nn.Cell) -> list[Site]:
    """The checkpoints of the gradients that a guarded optimizer is called with."""
    return list(optimizer.asd_gate.sites) if is_guarded(optimizer) else []


def _agreement() -> Any:
    """Sums numbers over all ranks, or hands them back where there is one rank only."""
    return P.AllReduce() if _ranks() > 1 else _same


def _width() -> int:
    """How many numbers a gate tells; the same on all ranks."""
    return WIDTH if _ranks() > 1 and hold_the_same() else 1


def _ranks() -> int:
    return int(get_group_size()) if GlobalComm.INITED else 1


def _same(x: Tensor) -> Tensor:
    return x


class _Gate(nn.Cell):
    """The part of a guard that asks whether an update may be applied.

    Attributes:
        sites: The checkpoints of the gradients that the optimizer is called with.
        guard_number: Which guard it is.
        width: How many numbers go over the ranks: the verdict, and in data parallel what else there is to tell.
        set_aside: Called in the branch where an update is refused, so that later steps are judged without it.
        gate: Whose it is.
    """

    set_aside: Any

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(auto_prefix=False)
        self.sites = tuple(sites)
        self.look = _look_at_each(sites)
        self.sum_over_ranks = _agreement()
        self.guard_number = next(_numbers)
        self.width = _width()
        self.gate = table().gates.default

    def after_update(self) -> None:
        """After an optimizer was called by Python: not in a compiled step."""

    def belong_to(self, gate: Gate) -> None:
        """Says whose it is from now on."""
        self.gate.guards.discard(self)
        self.gate = gate
        gate.guards.add(self)
        table().give_guard(self, gate)


class _KernelGate(_Gate):
    """Asks the C++ library; the gradients are its inputs so that all taps have written before it reads."""

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(sites)
        self.ask = kernel_function("asd_gate", self.width)
        self.count = kernel_function("asd_agree")
        self.number = Tensor([self.guard_number], ms.int32)
        self.set_aside = _same  # the library has done so by then
        self.before_asking: Callable[[], None] | None = None

    def __call__(self, gradients):
        """In PyNative, where the optimizer does not compile itself: before a compiled graph `seal` is asked anyway."""
        if self.before_asking is not None:
            self.before_asking()
        return super().__call__(gradients)

    def construct(self, gradients):
        refuses = self.ask(*gradients, *self.look(gradients), self.number)
        return self.count(self.sum_over_ranks(refuses), self.number)[0]


class _OperatorGate(_Gate):
    """Compares the Parameters of an `OperatorTable` with MindSpore operators."""

    def __init__(self, slots: OperatorTable, sites: Sequence[Site], *, lower: bool) -> None:
        super().__init__(sites)
        self.state = state = slots.new_guard(self.guard_number, self.width)
        self.decide = _make_decide(slots, state, _make_count_small(slots, state) if lower else None)
        self.count = _make_count(state)
        self.is_held = _make_is_held(slots.held, state)
        self.verdict = _verdict(self.width)
        self.set_aside = _make_set_aside(slots, state)

    @property
    def is_alone(self) -> bool:
        """Whether its monitor guards no other optimizer."""
        return self.state.is_alone

    def after_update(self) -> None:
        """After an optimizer was called by Python: not in a compiled step."""
        self.state.saw_update()

    def construct(self, gradients):
        total = self.decide((gradients, self.look(gradients)))
        if not self.is_alone:
            total = total + self.is_held(total) * self.verdict
        return self.count(self.sum_over_ranks(total))[0]


def _look_at_each(sites: Sequence[Site]) -> Any:
    """A function that reports each gradient to its site, and returns what is ready when that is done."""
    if not sites:
        return _nothing
    observe, count = make_observer(sites), len(sites)

    def look(gradients):
        return observe(gradients[:count])

    return look


def _nothing(gradients: Any) -> tuple[()]:
    return ()


def _make_decide(slots: OperatorTable, state: GuardState, count_small: Any) -> Any:
    reduce, capacity = P.ReduceSum(), slots.CAPACITY
    worst, tallies, limits = slots.worst, slots.tallies, slots.limits
    judged, counting, armed, message = state.judged, state.counting, state.armed, state.message
    verdict = _verdict(message.size)
    most = Tensor(np.repeat(np.array([np.inf, 0], np.float32), capacity))  # any number of calls, no element not finite

    def decide(ready):
        broken = reduce(F.cast(F.depend(worst, ready) > limits, ms.float32) * judged)
        broken = broken + reduce(F.cast(F.depend(tallies, ready) > most, ms.float32) * counting)
        if count_small is not None:
            broken = broken + count_small(ready)
        # In a replay `armed` is 2, and every update is refused.
        in_replay = F.cast(armed > 1.5, ms.float32)
        refuses = F.cast(broken * armed + in_replay > 0, ms.float32)
        return refuses * verdict + F.depend(message, ready) * (1 - in_replay)

    return decide


def _make_count_small(slots: OperatorTable, state: GuardState) -> Any:
    reduce, capacity = P.ReduceSum(), slots.CAPACITY
    worst, tallies, judged = slots.worst, slots.tallies, state.judged
    least, zero_passes = slots.least, slots.zero_passes

    def count_small(ready):
        values = F.depend(worst, ready)
        small = F.cast(values[capacity:] < least, ms.float32)
        small = small[:capacity] + small[capacity:]
        small = small * F.cast(values[:capacity] > zero_passes, ms.float32) * judged[:capacity]
        return reduce(small * F.cast(F.depend(tallies, ready)[:capacity] > 0, ms.float32))

    return count_small


def _make_count(state: GuardState) -> Any:
    add, floor, larger, assign = P.AssignAdd(), P.Floor(), P.Maximum(), P.Assign()
    counts, announcements, armed, sums = state.counts, state.announcements, state.armed, state.sums
    one_update, is_wide = Tensor(np.array([0, 1], np.float32)), sums.size > 1

    def count(message):
        total = message[:1] if is_wide else message
        refused = F.cast(total >= 0.5, ms.float32)
        is_counted = F.cast(armed < 1.5, ms.float32)
        counted = add(counts, larger(refused, one_update) * is_counted)
        counted = F.depend(add(announcements, F.cast(total > floor(total), ms.float32) * is_counted), counted)
        if is_wide:
            is_told = F.cast(message[1:2] > 0, ms.float32) * is_counted
            counted = F.depend(assign(sums, message * is_told + sums * (1 - is_told)), counted)
        return F.depend(refused, counted)

    return count


def _verdict(width: int) -> Tensor:
    """1 at the place of the verdict among as many numbers."""
    return Tensor(np.eye(1, width, dtype=np.float32)[0])


def _make_is_held(held: Parameter, state: GuardState) -> Any:
    """Whether another optimizer of the same step was refused: then none of them is applied."""
    own = Tensor(np.arange(held.size) == state.number, ms.float32)
    armed, reduce = state.armed, P.ReduceSum()

    def is_held(after):
        return reduce(F.depend(held, after) * own) * armed

    return is_held


def _make_set_aside(slots: OperatorTable, state: GuardState) -> Any:
    """What happens to the values of a refused update; not in a replay."""
    judged, counting, armed, peers, held = state.judged, state.counting, state.armed, state.peers, slots.held
    worst, tallies = slots.values
    aside_worst, aside_tallies = slots.aside
    select, larger, assign = P.Select(), P.Maximum(), P.Assign()
    own = Tensor(np.arange(held.size) == state.number, ms.float32)
    no_features, no_counts = (Tensor(np.zeros(parameter.size, np.float32)) for parameter in slots.values)

    def set_aside(refused):
        counts = F.cast(armed < 1.5, ms.float32)
        mine, done = judged * counts * refused > 0, refused
        done = F.depend(done, assign(aside_worst, larger(aside_worst, select(mine, worst, no_features))))
        done = F.depend(done, assign(worst, select(mine, no_features, F.depend(worst, done))))
        mine = counting * counts * refused > 0
        done = F.depend(done, assign(aside_tallies, aside_tallies + select(mine, tallies, no_counts)))
        done = F.depend(done, assign(tallies, select(mine, no_counts, F.depend(tallies, done))))
        # The others of this step are refused too; who was held himself has no more to say.
        is_first = (1 - F.reduce_sum(held * own)) * counts
        return F.depend(done, assign(held, (1 - own) * larger(held, peers * is_first)))

    return set_aside

"""What a guarded optimizer asks whether an update may be applied.

It compares the Parameters of the table with their limits, adds what all ranks found, counts, and sets the values of a
refused step aside. All of that are operators of the step: the host is not asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.communication import GlobalComm, get_group_size
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.measure.look import make_observer
from asd.operators.ranks.shards import hold_the_same
from asd.operators.table.gate import Gate
from asd.operators.table.guard_state import GuardState
from asd.operators.table.message import WIDTH
from asd.operators.table.site import Site
from asd.operators.table.slots import Table, table

__all__ = ["GateCell", "number_of_ranks"]

_numbers = itertools.count()


def number_of_ranks() -> int:
    """How many ranks train together; 1 where nothing connects them."""
    return int(get_group_size()) if GlobalComm.INITED else 1


class GateCell(nn.Cell):
    """The part of a guard that asks whether an update may be applied.

    Args:
        sites: The checkpoints of the gradients that the optimizer is called with.
        lower: Whether there will be lower limits too.

    Attributes:
        sites: The checkpoints of the gradients that the optimizer is called with.
        guard_number: Which guard it is.
        width: How many numbers go over the ranks: the verdict, and in data parallel what else there is to tell.
        set_aside: Called in the branch where an update is refused, so that later steps are judged without it.
        gate: Whose it is.
        state: What it has in the table.
    """

    def __init__(self, sites: Sequence[Site], *, lower: bool) -> None:
        super().__init__(auto_prefix=False)
        self.sites = tuple(sites)
        self.look = _look_at_each(sites)
        self.sum_over_ranks = _agreement()
        self.guard_number = next(_numbers)
        self.width = _width()
        slots = table()
        self.gate = slots.gates.default
        self.state = state = slots.new_guard(self.guard_number, self.width)
        self.decide = _make_decide(slots, state, _make_count_small(slots, state) if lower else None)
        self.count = _make_count(state)
        self.is_held = _make_is_held(slots.held, state)
        self.verdict = _verdict(self.width)
        self.set_aside = _make_set_aside(slots, state)

    def belong_to(self, gate: Gate) -> None:
        """Says whose it is from now on."""
        self.gate.guards.discard(self)
        self.gate = gate
        gate.guards.add(self)
        table().give_guard(self, gate)

    @property
    def is_alone(self) -> bool:
        """Whether its monitor guards no other optimizer."""
        return self.state.is_alone

    def after_update(self) -> None:
        """After an optimizer was called by Python; a graph that it is in itself is not waited for."""
        if ms.get_context("mode") == ms.PYNATIVE_MODE:
            self.state.saw_update()

    def construct(self, gradients):
        """1 where the update must not be applied, on any rank, else 0."""
        total = self.decide((gradients, self.look(gradients)))
        if not self.is_alone:
            total = total + self.is_held(total) * self.verdict
        return self.count(self.sum_over_ranks(total))[0]


def _agreement() -> Any:
    """Sums numbers over all ranks, or hands them back where there is one rank only."""
    return P.AllReduce() if number_of_ranks() > 1 else _same


def _width() -> int:
    """How many numbers a gate tells; the same on all ranks."""
    return WIDTH if number_of_ranks() > 1 and hold_the_same() else 1


def _same(x: Tensor) -> Tensor:
    return x


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


def _make_decide(slots: Table, state: GuardState, count_small: Any) -> Any:
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


def _make_count_small(slots: Table, state: GuardState) -> Any:
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


def _make_set_aside(slots: Table, state: GuardState) -> Any:
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

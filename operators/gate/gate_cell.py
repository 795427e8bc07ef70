"""Gate cell of a guarded optimizer: decides whether an update may be applied."""

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

from asd.operators.gate.gate import Gate
from asd.operators.gate.guard_state import GuardState
from asd.operators.gate.site import Site
from asd.operators.gate.slots import table
from asd.operators.gate.table import NOTHING, Table
from asd.operators.gate.tap import make_observer, note
from asd.operators.private.boundary import shielded

_numbers = itertools.count()


def number_of_ranks() -> int:
    """Returns how many ranks train together; 1 where communication is not initialized."""
    return int(get_group_size()) if GlobalComm.INITED else 1


class GateCell(nn.Cell):
    """The part of a guard that asks whether an update may be applied.

    Args:
        sites: The sites of the gradients that the optimizer is called with.
        lower: Whether there will be lower limits too.

    Attributes:
        sites: The sites of the gradients that the optimizer is called with.
        guard_number: Which guard it is.
        set_aside: Called in the branch where an update is refused, so that later steps are judged without it.
        gate: Gate that it belongs to.
        state: Its state in the table.
    """

    def __init__(self, sites: Sequence[Site], *, lower: bool) -> None:
        super().__init__(auto_prefix=False)
        slots = table()
        self.sites = tuple(sites)
        self.look = _look_at_each(sites)
        self.sum_over_ranks = P.AllReduce() if number_of_ranks() > 1 else _same
        self.guard_number = next(_numbers)
        self.gate = slots.gates.default
        self.state = state = slots.new_guard(self.guard_number)
        self.decide = _make_decide(slots, state, lower=lower)
        self.count = _make_count(state)
        self.is_held = _make_is_held(slots.held, state)
        self.set_aside = _make_set_aside(slots, state)

    def belong_to(self, gate: Gate) -> None:
        """Hands this guard over to `gate`."""
        self.gate.guards.discard(self)
        self.gate = gate
        gate.guards.add(self)
        table().give_guard(self, gate)

    @property
    def is_alone(self) -> bool:
        """True where its monitor guards no other optimizer."""
        return self.state.is_alone

    @shielded
    def refuses(self, gradients: Sequence[Any]) -> bool:
        """Returns whether this rank or another one refuses the update; for updates made in Python."""
        slots, state = table(), self.state
        note(self.sites, gradients)
        refused = slots.broken(state)
        if number_of_ranks() > 1:
            refused = bool(self.sum_over_ranks(Tensor([float(refused)], ms.float32)).asnumpy()[0] > 0)
        refused = slots.hold(state, refused=refused)
        state.saw_update(refused=refused)
        return refused

    def construct(self, gradients):
        """Returns 1 where any rank refuses the update, else 0."""
        total = self.decide(self.look(gradients))
        if not self.is_alone:
            total = total + self.is_held(total)
        return self.count(self.sum_over_ranks(total))[0]


def _same(x: Tensor) -> Tensor:
    return x


def _look_at_each(sites: Sequence[Site]) -> Any:
    """Returns a function that reports each gradient to its site, and returns a value to wait for."""
    if not sites:
        return _ready
    observe, count = make_observer(sites), len(sites)

    def look(gradients):
        # The verdict waits for every gradient, also those that are not measured here.
        return gradients, observe(gradients[:count])

    return look


def _ready(gradients: Any) -> Any:
    return gradients


def _make_decide(slots: Table, state: GuardState, *, lower: bool) -> Any:
    reduce = P.ReduceSum()
    worst, limits, least = slots.worst, slots.limits, slots.least
    judged, armed = state.judged, state.armed

    def decide(ready):
        values = F.depend(worst, ready)
        fits = F.cast(values <= limits, ms.float32)
        if lower:
            fits = fits * F.cast(F.logical_or(values >= least, values < 0), ms.float32)
        broken = reduce((1 - fits) * judged)
        # In a rerun `armed` is 2, and every update is refused.
        return F.cast(broken * armed + F.cast(armed > 1.5, ms.float32) > 0, ms.float32)

    return decide


def _make_count(state: GuardState) -> Any:
    add, larger = P.AssignAdd(), P.Maximum()
    counts, armed = state.counts, state.armed
    one_update = Tensor(np.array([0, 1], np.float32))

    def count(total):
        refused = F.cast(total >= 0.5, ms.float32)
        return F.depend(refused, add(counts, larger(refused, one_update) * F.cast(armed < 1.5, ms.float32)))

    return count


def _make_is_held(held: Parameter, state: GuardState) -> Any:
    """Returns the graph function that checks whether another optimizer of the step was refused; then all are."""
    own = Tensor(np.arange(held.size) == state.number, ms.float32)
    armed, reduce = state.armed, P.ReduceSum()

    def is_held(after):
        return reduce(F.depend(held, after) * own) * armed

    return is_held


def _make_set_aside(slots: Table, state: GuardState) -> Any:
    """Returns the graph function that sets the values of a refused update aside; it changes nothing in a rerun."""
    judged, armed, peers, held = state.judged, state.armed, state.peers, slots.held
    worst, aside = slots.worst, slots.aside
    select, larger, assign = P.Select(), P.Maximum(), P.Assign()
    own = Tensor(np.arange(held.size) == state.number, ms.float32)
    nothing = Tensor(np.full(worst.size, NOTHING, np.float32))

    def set_aside(refused):
        counts = F.cast(armed < 1.5, ms.float32)
        mine, done = judged * counts * refused > 0, refused
        done = F.depend(done, assign(aside, larger(aside, select(mine, worst, nothing))))
        done = F.depend(done, assign(worst, select(mine, nothing, F.depend(worst, done))))
        # Hold the other optimizers of the step too; skip guards that are already held.
        is_first = (1 - F.reduce_sum(held * own)) * counts
        return F.depend(done, assign(held, (1 - own) * larger(held, peers * is_first)))

    return set_aside

"""Gate cell of a guarded optimizer: decides whether an update may be applied."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import GlobalComm, get_group_size, get_rank
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate import guard_state as states
from asd.operators.gate.gate import Gate
from asd.operators.gate.guard_state import NOTHING, UNSEEN, Count, GuardState, Mode
from asd.operators.gate.site import Site
from asd.operators.gate.slots import table
from asd.operators.gate.table import Table
from asd.operators.gate.tap import make_observer, note
from asd.operators.private.boundary import shielded
from asd.operators.private.layout import local
from asd.rules.reading import WEIGHT_GRADIENT


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
        set_aside: Called in the branch where an update is refused, so that later steps are judged without it.
        gate: Gate that it belongs to.
        state: Its state in the table.
    """

    def __init__(self, sites: Sequence[Site], *, lower: bool) -> None:
        super().__init__(auto_prefix=False)
        slots, self.ranks = table(), number_of_ranks()
        self.sites = tuple(sites)
        self.sum_over_ranks: Any = P.AllReduce() if self.ranks > 1 else None
        self.gate = slots.gates.default
        self.state = state = slots.new_guard(sites, get_rank() if self.ranks > 1 else None)
        self.look = _look_at_each(sites, slots, state)
        self.lower = lower
        self.compile_decision()
        self.set_aside = _make_set_aside(slots, state)

    def compile_decision(self) -> None:
        """Makes the function of graphs that decides; once more when it is to compare the sums of a reducer too."""
        self.decide = _make_decide(table(), self.state, self.ranks, self.sum_over_ranks, lower=self.lower)

    def belong_to(self, gate: Gate) -> None:
        """Hands this guard over to `gate`."""
        self.gate.guards.discard(self)
        self.gate = gate
        gate.guards.add(self)
        table().give_guard(self.state, gate)

    @shielded
    def refuses(self, gradients: Sequence[Any]) -> bool:
        """Returns whether this rank or another one refuses the update; for updates made in Python."""
        slots, state = table(), self.state
        missing = [site for site, each in zip_longest(self.sites, gradients) if each is None or local(each).size == 0]
        known = slots.expect(state, [site for site in missing if site is not None])
        noted = note(self.sites, gradients, (slots.known_at + state.number, known) if self.sites else None)
        if self.sites and noted is None:  # an exception of ours, which is reported: it is no finding about the device
            slots.excuse(state, self.sites, known)
        misfits = slots.misfits(state)
        if keep := self.gate.before_update and self.gate.before_update():
            self.gate.mended |= bool(keep())  # found before the first optimizer of a step
            misfits += self.gate.mended
        if self.ranks > 1:
            call = state.next_call()
            vote, link = Tensor([call - misfits], ms.float32), state.link
            vote = vote if link is None else P.Concat()((vote, link.shares.value()))
            found = self.sum_over_ranks(vote).asnumpy().copy()
            found[0] -= self.ranks * call
            misfits = int(found[0] != 0)
            if link is not None:
                link.note(found)
                misfits += np.count_nonzero(link.misfits(found[1:])) * (state.mode == Mode.ON)
        refused = state.mode == Mode.REPLAY or misfits > 0
        if refused and state.mode == Mode.ON:
            slots.refuse(state)
        state.saw_update(refused=refused)
        return refused

    def construct(self, gradients):
        """Returns the count of this call, whether it equals the number for an update, and whether it differs."""
        return self.decide(self.look(gradients))


def _look_at_each(sites: Sequence[Site], slots: Table, state: GuardState) -> Any:
    """Returns a function that reports each gradient to its site, and returns a value to wait for."""
    if not sites:
        return _ready
    known_at = slots.known_at + state.number
    known = Site(known_at, 0, "", WEIGHT_GRADIENT)
    known.largest = sites[0].largest
    observe, count = make_observer([*sites, known]), len(sites)
    worst, bounds, gather, put = slots.worst, slots.bounds, P.Gather(), P.ScatterUpdate()
    at, number_at = Tensor([known_at], ms.int32), Tensor([2 * slots.size + slots.GUARDS], ms.int32)
    nothing = Tensor([UNSEEN], ms.float32)

    def look(gradients):
        # The known number is another one in each step, so it replaces that of the last.
        empty = put(F.depend(worst, gradients), at, nothing)
        number = F.depend(gather(bounds, number_at, 0), empty)
        # The verdict waits for every gradient, also those that are not measured here.
        return gradients, observe((*gradients[:count], number))

    return look


def _ready(gradients: Any) -> Any:
    return gradients


def _make_decide(slots: Table, state: GuardState, ranks: int, sum_over_ranks: Any, *, lower: bool) -> Any:
    """Returns the function of a graph that compares the number of fitting values with the host's number.

    Two operators compare, so that neither alone lets an update pass. The number contains that of the call, so that no
    result of another call passes; on one side it is bounded, as next to a huge number misfits are lost in rounding.
    """
    fits, _ = states.make_refusal(P.LogicalAnd(), P.LogicalOr(), P.Select(), P.Maximum())
    reduce, split, gather, add, rest = P.ReduceSum(), P.Split(0, 3), P.Gather(), P.AssignAdd(), P.FloorMod()
    larger, smaller, most = P.Maximum(), P.Minimum(), float(states.CALLS_ALIKE)
    worst, bounds, counts, weights, size = slots.worst, slots.bounds, slots.counts, state.weights, slots.GUARDS
    call_at, number_at = Tensor([Count.CALLS * size + state.number], ms.int32), Tensor([state.number], ms.int32)
    counted = Tensor(state.adds(Count.CALLS, states.NEXT_CALL, size) + state.adds(Count.UPDATES, 1, size), ms.float32)
    missed = Tensor(state.adds(Count.MISSED, 1, size), ms.float32)
    sum_with_link = _make_sum(slots, state, sum_over_ranks)

    def decide(ready):
        call = rest(gather(F.depend(counts, ready), call_at, 0), most)
        limits, least, numbers = split(bounds)
        fit = F.cast(fits(F.depend(worst, ready), limits, least, lower=lower), ms.float32)
        vote = reduce(fit * weights) + smaller(larger(call, 0.0), most) - gather(numbers, number_at, 0)
        # Over ranks one comparison has the number by a product, the other one by the sum: neither alone can be wrong.
        found, needed, calls = (vote, call, call) if ranks == 1 else sum_with_link(vote, call, call * ranks, ready)
        added = F.depend(counted, vote) if ranks == 1 else counted + missed * (vote - call)
        found = F.depend(found, add(counts, added))
        return found, found == needed, found != calls

    return decide


def _make_sum(slots: Table, state: GuardState, sum_over_ranks: Any) -> Any:
    """Returns the function of a graph that sums votes and calls over the ranks, and what a reducer's check has found.

    The differences that fit are counted, and planted ones, as the values are: the host knows what that comes to.
    """
    link, concat, cut = state.link, P.Concat(), P.Slice()

    def sum_alone(vote, call, needed, ready):
        found = sum_over_ranks(concat((vote, call)))
        return cut(found, (0,), (1,)), needed, cut(found, (1,), (1,))

    if link is None:
        return sum_alone
    shares, found_of_all, bounds, count = link.shares, link.found, slots.bounds, len(link.names)
    reduce, gather, assign, size = P.ReduceSum(), P.Gather(), P.Assign(), P.Abs()
    first = np.arange(slots.planted_at, slots.planted_at + slots.PLANTED)
    planted, planted_at = Tensor(np.full(slots.PLANTED, slots.PLANTED_VALUE, np.float32)), Tensor(first, ms.int32)
    at = [2 * slots.size + slots.link_at + state.number + more for more in (0, slots.GUARDS)]
    armed_at, needed_at = Tensor(at[:1], ms.int32), Tensor(at[1:], ms.int32)

    def sum_both(vote, call, needed, ready):
        found = sum_over_ranks(concat((vote, call, F.depend(shares, ready))))
        head, calls = cut(found, (0,), (1,)), cut(found, (1,), (1,))
        differences = concat((size(cut(found, (2,), (count,))), planted))
        allowed = concat((cut(found, (2 + count,), (count,)), gather(bounds, planted_at, 0)))
        fit = reduce(F.cast(differences <= allowed, ms.float32)) * gather(bounds, armed_at, 0)
        told = assign(found_of_all, concat((head - needed, cut(found, (2,), (2 * count,)))))
        return F.depend(head + (fit - gather(bounds, needed_at, 0)), told), needed, calls

    return sum_both


def _make_set_aside(slots: Table, state: GuardState) -> Any:
    """Returns the function of a graph that sets the values of a refused update aside."""
    _, move = states.make_refusal(P.LogicalAnd(), P.LogicalOr(), P.Select(), P.Maximum())
    weights, peers, worst, aside, counts = state.weights, state.peers, slots.worst, slots.aside, slots.counts
    assign, gather, add, size = P.Assign(), P.Gather(), P.AssignAdd(), slots.GUARDS
    refused, first = (Tensor(state.adds(row, 1, size), ms.float32) for row in (Count.REFUSED, Count.FIRST))
    updates_at, first_at = (Tensor([row * size + state.number], ms.int32) for row in (Count.UPDATES, Count.FIRST))
    own_at = Tensor([slots.held_at + state.number], ms.int32)
    initial = np.full(slots.size, NOTHING)
    initial[slots.held_at : slots.known_at] = 0
    empty = Tensor(initial, ms.float32)

    def set_aside(vote):
        seen = F.depend(counts, vote)
        number = gather(seen, updates_at, 0) * F.cast(gather(seen, first_at, 0) == 0.0, ms.float32)
        done = F.depend(vote, add(counts, refused + first * number))
        kept, left = move(worst, aside, weights == float(state.factor), empty, peers, gather(worst, own_at, 0))
        done = F.depend(done, assign(aside, kept))
        return F.depend(done, assign(worst, F.depend(left, done)))

    return set_aside

"""Check of a reducer: what goes in on all ranks must sum to what comes out, within rounding."""

from collections.abc import Sequence
from math import gcd, sqrt
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_group_size
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate.guard_state import CALLS_ALIKE, NEXT_CALL, OVERFLOWS, Count, GuardState, LinkSums, write
from asd.operators.gate.slots import table
from asd.operators.gate.statistics import SMALL
from asd.operators.gate.tap import hidden
from asd.operators.private.boundary import shielded
from asd.operators.private.mixed_precision import CheckCell

PARTS = 20  # turns in which all of a gradient is read; one of at most `SMALL` elements is read in each turn
_ROW, _SHORTEST = 128, 16
_MARGIN = 32.0  # times that a difference may be as large as random rounding makes it, where no weight is larger than 1
_UNIT, _LEAST = 2.0**-24, 2.0**-100
_OF_FLOAT32, _OF_FLOAT16, _OF_BFLOAT16 = (_UNIT, 2.0**-126), (2.0**-11, 2.0**-25), (2.0**-8, 2.0**-126)
"""Largest error of a rounded number: relative, and absolute where the number is tiny."""
_ALIKE, _NEXT, _PARTS = float(CALLS_ALIKE), float(NEXT_CALL), float(PARTS)
_STACK, _SUM, _CONCAT, _FLAT, _CAST, _GATHER = P.Stack(), P.ReduceSum(), P.Concat(), P.Reshape(), P.Cast(), P.Gather()
_ABS, _MAX, _SQRT, _ASSIGN, _EACH = P.Abs(), P.ReduceMax(keep_dims=True), P.Sqrt(), P.Assign(), ops.HyperMap()
_LOWER, _DIVIDE, _REST = P.Minimum(), P.FloorDiv(), P.FloorMod()
_SELECT, _BOTH, _EQUAL = P.Select(), P.LogicalAnd(), P.Equal()


class Links(CheckCell):
    """Sums of what goes into a reducer and of what comes out, which the gate adds up over the ranks and compares.

    Elements have weights, so that errors do not cancel. Of a large gradient every `PARTS`-th row of elements is read,
    other rows in each step; a row is summed before it is weighted, which saves a read. This rank's share of a
    difference is its sum before the reducer less what falls to it of the sum after: over all ranks the shares come to
    0, in whatever groups of ranks reducers work. Of several calls before one update, as for micro-batches, they add up.

    Args:
        reducer: The reducer.
        own: Looks at the gradients before it.
        weights: Their weights.
        state: State of the guard that compares; its calls choose the rows.
    """

    def __init__(self, reducer: nn.Cell, own: Any, weights: Sequence[Parameter], state: GuardState) -> None:
        super().__init__()
        group = reducer.allgather.group
        self.own, self.state, self.ranks, own.is_linked = own, state, float(get_group_size(group)), True
        self.factor = float(reducer.degree.asnumpy()) if reducer.mean else 1.0
        alike: dict[tuple[int, int, str], list[int]] = {}
        for i, weight in enumerate(weights):
            row = gcd(weight.size, _ROW) if weight.size > SMALL and weight.size % _SHORTEST == 0 else 1
            if reducer.allreduce_filter[i] and weight.size > 0:
                alike.setdefault((row, weight.size // row, str(weight.dtype)), []).append(i)
        self.members, order = tuple(map(tuple, alike.values())), [i for each in alike.values() for i in each]
        self.rows, self.last = tuple(row for row, *_ in alike), tuple(count - 1 for _, count, _ in alike)
        # In steps of `_ROW` numbers a sum has small errors whatever its order is.
        read = [count if row == 1 else -(-count // PARTS // _ROW) * _ROW for row, count, _ in alike]
        self.steps = tuple((-1, count // gcd(count, _ROW), gcd(count, _ROW)) for count in read)
        self.starts = tuple(Tensor(np.arange(count, dtype=np.int32) * PARTS) for count in read)
        self.weights = tuple(Tensor(_weights(count)) for count in read)
        most = _MARGIN * self.factor
        self.margins = tuple(
            (most * sqrt(row), most * _UNIT * (sqrt(step) + sqrt(steps)), _MARGIN * sqrt(row * step * steps))
            for row, (_, steps, step) in zip(self.rows, self.steps, strict=True)
        )
        state.link = link = LinkSums([weights[i] for i in order], group, state.number)
        self.in_graph = tuple(Tensor([own.sites[i].slot for i in each], ms.int32) for each in self.members)
        self.in_python = tuple(Tensor([len(weights) - 1 - i for i in each], ms.int32) for each in self.members)
        self.call_at = Tensor([Count.CALLS * table().GUARDS + state.number], ms.int32)
        self.held = hidden(table().worst, table().counts, link.shares, link.outputs, link.call)

    def __call__(self, gradients, reduced):
        """Measures at once in PyNative; a graph that calls it compiles `construct`."""
        if ms.get_context("mode") == ms.GRAPH_MODE:
            return super().__call__(gradients, reduced)
        self._note(gradients, reduced)
        self.own.is_noted = False
        return reduced

    @shielded
    def _note(self, gradients: Any, reduced: Any) -> None:
        norms, self.own.norms = self.own.norms, None
        if norms is not None and len(norms) == len(self.own.sites):
            number = self.state.calls_by_python % (CALLS_ALIKE // NEXT_CALL)
            turn, last = Tensor([number % PARTS], ms.int32), Tensor([number], ms.float32)
            found, after = self.compare(gradients, reduced, norms, self.in_python, turn)
            for to, value in zip(self.held()[2:], self.add(found, after, last), strict=True):
                write(to, value)

    def construct(self, gradients, reduced):
        """Hands on what the reducer returned."""
        if self.own.is_noted:
            return reduced
        worst, counts, shares, outputs, last = self.held()
        # All ranks count calls alike, or the gate refuses.
        number = _DIVIDE(_REST(_GATHER(counts, self.call_at, 0), _ALIKE), _NEXT)
        turn = _CAST(_REST(number, _PARTS), ms.int32)
        found, after = self.compare(gradients, reduced, F.depend(worst, gradients), self.in_graph, turn)
        found, after, number = self.add(found, after, number)
        return F.depend(reduced, (_ASSIGN(shares, found), _ASSIGN(outputs, after), _ASSIGN(last, number)))

    def add(self, found, after, number):
        """Returns sums with those of earlier calls for the same update, finite ones, and the number of that update."""
        _, _, shares, outputs, last = self.held()
        found = found + _SELECT(_BOTH(_EQUAL(last, number), _ABS(shares) < OVERFLOWS), shares, F.zeros_like(shares))
        after = after + _SELECT(_BOTH(_EQUAL(last, number), _ABS(outputs) < OVERFLOWS), outputs, F.zeros_like(outputs))
        return found, after, number

    def compare(self, gradients, reduced, norms, at, turn):
        """Returns this rank's shares of the differences, with what rounding may make of them, and the sums after.

        Args:
            gradients: What goes into the reducer.
            reduced: What comes out.
            norms: L2 norms of what goes in, and other numbers.
            at: Where the norms are, for each kind of gradients.
            turn: Which rows are read.
        """
        before, after, allowed = (), (), ()
        for k in range(len(self.members)):
            one, other = self.take(gradients, k, turn), self.take(reduced, k, turn)
            before = (*before, self.sum(one, k))  # type: ignore[assignment]
            after = (*after, self.sum(other, k))  # type: ignore[assignment]
            unit, least = _rounding(gradients[self.members[k][0]])
            of_one, of_sum, of_least = self.margins[k]
            norm = _GATHER(norms, at[k], 0)
            if self.rows[k] == 1:
                may = norm * (of_one * unit + of_sum) + of_least * least
            else:  # what is summed is smaller than the whole
                largest = _MAX(_ABS(one), 1) + _LEAST
                small = one / largest
                spread = _SQRT(_SUM(small * small, 1)) * _FLAT(largest, (-1,))
                # Squares of tiny numbers may be 0 in the norm.
                may = (norm + spread) * (of_one * unit) + spread * of_sum + of_least * least
            allowed = (*allowed, may)  # type: ignore[assignment]
        sums = _CONCAT(after)
        return _CONCAT((_CONCAT(before) * self.factor - sums / self.ranks, *allowed)), sums

    def sum(self, rows, k):
        """Returns the weighted sum of each row."""
        return _SUM(_SUM(_FLAT(rows * self.weights[k], self.steps[k]), 2), 1)

    def take(self, tensors, k, turn):
        """Returns what is weighted of the tensors of kind `k`, each in a row."""
        rows = turn
        if self.rows[k] > 1:
            rows = _LOWER(self.starts[k] + turn, self.last[k])
        # Not a loop, which takes the square of their number to compile.
        return _STACK(_EACH(F.partial(self.take_one, tensors, k, rows), self.members[k]))

    def take_one(self, tensors, k, rows, i):
        """Returns what is weighted of one tensor, as a row."""
        some = tensors[i]
        if self.rows[k] > 1:
            some = _GATHER(_FLAT(some, (-1, self.rows[k])), rows, 0)
        some = some if some.dtype == ms.float32 else _CAST(some, ms.float32)
        return _SUM(some, 1) if self.rows[k] > 1 else _FLAT(some, (-1,))


def _rounding(x):
    if x.dtype == ms.float16:
        return _OF_FLOAT16
    return _OF_BFLOAT16 if x.dtype == ms.bfloat16 else _OF_FLOAT32


def _weights(count: int) -> np.ndarray:
    """Returns numbers of 1 to 2, of either sign at random, so that sums stay small where elements are alike."""
    random = np.random.default_rng(count)
    weights: np.ndarray = random.choice([-1.0, 1.0], count) * random.uniform(1, 2, count)
    return weights.astype(np.float32)

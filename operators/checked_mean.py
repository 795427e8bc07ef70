"""Means over ranks that are checked: what a `DistributedGradReducer` returns against what all ranks gave it.

Before the reducer each rank sums its own gradients, in blocks; these sums go through an all-reduce of their own; behind
the reducer the sums of the means are compared with them. The gradients pass as they are, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_group_size
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.compiled_super import mend_super
from asd.operators.mean_check import BLOCK, NUMBERS, blocks_of
from asd.operators.operator_table import OperatorTable
from asd.operators.site import Site
from asd.operators.slots import table
from asd.operators.tap import hidden, kernel_function
from asd.reading import MEAN

__all__ = ["check_means"]

_UNIT = 2.0**-24  # of a number in float32
_SMALLEST = 2.0**-126


def check_means(reducer: nn.Cell, parameters: Sequence[Any]) -> list[Site]:
    """Checks what `reducer` returns, once; it is not compiled yet.

    Args:
        reducer: A `DistributedGradReducer` for the gradients of `parameters`.
        parameters: Those of the optimizer.

    Returns:
        The checkpoints, `averaged.<parameter>.checksum`; none for a parameter whose gradient is not reduced.
    """
    check = getattr(reducer, "asd_mean_check", None)
    if check is None:
        mend_super()
        base = type(reducer)

        class Checked(base):  # type: ignore[misc, valid-type]
            def construct(self, gradients, *args):
                told = self.asd_mean_check.tell(gradients)
                means = super().construct(F.depend(gradients, told), *args)
                return F.depend(means, self.asd_mean_check.compare(means, told))

        Checked.__name__, Checked.__qualname__, Checked.__module__ = base.__name__, base.__qualname__, base.__module__
        kind = _OperatorMeans if isinstance(table(), OperatorTable) else _KernelMeans
        check = reducer.asd_mean_check = kind(reducer, parameters)
        reducer.__class__ = Checked
    return list(check.sites)


class _Means(nn.Cell):
    """What is known about the means of one reducer.

    Attributes:
        sites: One for each gradient that is reduced.
        places: Which gradient each of them is.
        sizes: Elements of each.
    """

    def __init__(self, reducer: nn.Cell, parameters: Sequence[Any]) -> None:
        super().__init__(auto_prefix=False)
        reduced = enumerate(zip(parameters, reducer.allreduce_filter, strict=True))
        chosen = [(i, weight) for i, (weight, is_reduced) in reduced if is_reduced and weight.size > 0]
        self.places = tuple(i for i, _ in chosen)
        self.sizes = tuple(int(weight.size) for _, weight in chosen)
        self.sites = tuple(table().new_site(f"averaged.{weight.name}.checksum", MEAN) for _, weight in chosen)
        for site in self.sites:
            site.claimed = True
        group = (reducer.op_list[0] if reducer.split_fusion else reducer.allreduce).group
        self.ranks = int(get_group_size(group))
        self.factor = float(reducer.degree.asnumpy()) if reducer.mean else 1.0
        self.sum_over_ranks = P.AllReduce("sum", group)


class _KernelMeans(_Means):
    """By the C++ kernel: one operator before the reducer, one behind it."""

    def __init__(self, reducer: nn.Cell, parameters: Sequence[Any]) -> None:
        super().__init__(reducer, parameters)
        slots = np.full(len(parameters), -1, np.int32)
        slots[list(self.places)] = [site.slot for site in self.sites]
        self.slots = Tensor(slots)
        self.mean = Tensor(np.array([self.factor, self.ranks], np.float32))
        self.told = kernel_function("asd_mean_told", NUMBERS * sum(blocks_of(size) for size in self.sizes))
        self.check = kernel_function("asd_mean_check")

    def tell(self, gradients):
        """What all ranks tell of their gradients."""
        return self.sum_over_ranks(self.told(*gradients, self.slots))

    def compare(self, means, told):
        """A number that depends on the comparison."""
        return self.check(*means, told, self.slots, self.mean)


class _OperatorMeans(_Means):
    """By MindSpore operators, in float32, so the bound is wider; the sums are made in every step and count when due."""

    def __init__(self, reducer: nn.Cell, parameters: Sequence[Any]) -> None:
        super().__init__(reducer, parameters)
        slots = table()
        assert isinstance(slots, OperatorTable)
        self.slots = hidden(slots.max_abs, slots.calls, slots.due)
        self.indices = tuple(Tensor([site.slot], ms.int32) for site in self.sites)
        self.sum, self.largest, self.abs, self.concat = P.ReduceSum(), P.ReduceMax(), P.Abs(), P.Concat()
        self.gather, self.finite, self.select = P.Gather(), P.IsFinite(), P.Select()
        self.keep_worst, self.add = P.ScatterMax(), P.ScatterAdd()
        self.none = Tensor([0.0], ms.float32)
        # Sums of a block and of its sums by a tree of additions, or by lanes: far fewer roundings than elements.
        self.roundings = (2 * self.ranks + 4 + 64) * _UNIT

    def tell(self, gradients):
        """What all ranks tell of their gradients: per block the sum and that of magnitudes, and who tells."""
        _, _, due = self.slots()
        told = ()
        for i in range(len(self.places)):
            blocks = _blocks(gradients[self.places[i]])
            told = (*told, self.sum(blocks, 1), self.sum(self.abs(blocks), 1))  # type: ignore[assignment]
            told = (*told, self.gather(due, self.indices[i], 0))  # type: ignore[assignment]
        return self.sum_over_ranks(self.concat(told))

    def compare(self, means, told):
        """A number that depends on the comparison."""
        max_abs, calls, _ = self.slots()
        at, done = 0, self.none
        for i in range(len(self.places)):
            mean = means[self.places[i]]
            blocks = _blocks(mean)
            count = blocks.shape[0]
            sums, magnitudes = told[at : at + count], self.factor * told[at + count : at + 2 * count]
            counts = F.cast(told[at + 2 * count : at + 2 * count + 1] == self.ranks, ms.float32)
            at = at + 2 * count + 1
            relative, smallest = _narrowing(mean.dtype)
            residual = self.abs(self.sum(blocks, 1) - self.factor * sums)
            bound = magnitudes * (self.roundings + relative) + BLOCK * (self.ranks + 2) * smallest
            scores = residual / bound
            judged = self.finite(self.sum(scores) + self.sum(bound)).reshape((1,))
            counts = counts * F.cast(judged, ms.float32)
            score = self.select(judged, self.largest(scores).reshape((1,)), self.none)
            kept = self.keep_worst(max_abs, self.indices[i], score * counts)
            done = F.depend(F.depend(self.add(calls, self.indices[i], counts), kept), done)
        return done


def _blocks(x):
    """In float32, of shape (blocks, elements of a block), filled up with zeros."""
    flat = F.cast(x, ms.float32).reshape((-1,))
    size = flat.shape[0]
    if size <= BLOCK:
        return flat.reshape((1, size))
    if size % BLOCK > 0:
        flat = P.Pad(((0, BLOCK - size % BLOCK),))(flat)
    return flat.reshape((-1, BLOCK))


def _narrowing(dtype):
    if dtype == ms.float16:
        return 2.0**-11, 2.0**-14
    if dtype == ms.bfloat16:
        return 2.0**-8, _SMALLEST
    return 0.0, _SMALLEST

"""What a tensor is measured by, and its way into the slots; each operator costs time on a device, so there are few."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.layout import is_pipeline
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.table.site import Site
from asd.operators.table.slots import Table
from asd.rules.readings.features import FEATURES

__all__ = ["Write", "statistics_of"]

_ZERO, _ONE, _SMALLEST = (Tensor(value, ms.float32) for value in (0.0, 1.0, 1.1754944e-38))


def statistics_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of one tensor.

    Args:
        x: Any shape, any floating-point type.

    Returns:
        float32 of shape (3,): largest finite magnitude, L2 norm and mean magnitude; norm and mean are `inf` or `nan`
        when an element is. And float32 of shape (), how many elements are not finite.
    """
    largest, unit, squares, mean, bad = _reductions(x)
    return P.Stack()((largest, unit * P.Sqrt()(squares), unit * mean)), bad


def _reductions(x):
    """All that takes a whole tensor: five numbers of shape ().

    The squares are summed, and the mean taken, of x divided by the second number, so that none overflows or vanishes.
    Scalars stand for tensors of them, which the compiler would make constants, as large as x.
    """
    magnitude = P.Abs()(P.Cast()(x, ms.float32))
    finite = P.IsFinite()(magnitude)
    largest = P.ReduceMax()(P.Select()(finite, magnitude, _ZERO))  # it drops NaN on CPU: only finite ones get there
    # At least the smallest normal float32: a division may be made as a product with the reciprocal, which must be
    # finite.
    unit = P.Maximum()(largest, _SMALLEST)
    scaled = magnitude / unit
    bad = P.ReduceSum()(P.Select()(finite, _ZERO, _ONE))
    return largest, unit, P.ReduceSum()(scaled * scaled), P.ReduceMean()(scaled), bad


def _reductions_in_pipeline(x):
    """The same of operators that the passes of a pipeline know: they refuse a selection from a scalar."""
    g = P.Cast()(x, ms.float32)
    finite = P.IsFinite()(g)
    zeros = P.ZerosLike()(g)
    largest = P.ReduceMax()(P.Abs()(P.Select()(finite, g, zeros)))
    unit = P.Maximum()(largest, _SMALLEST)
    scaled = g / unit
    bad = P.ReduceSum()(1.0 - P.Cast()(finite, ms.float32))
    return largest, unit, P.ReduceSum()(scaled * scaled), P.ReduceMean()(P.Abs()(scaled)), bad


class Write(CheckCell):
    """Writes the numbers of some tensors into their slots; returns a tensor that is ready when that is done.

    What takes a whole tensor is one operator for each; what follows is one for all of them.

    Args:
        sites: As many as there will be tensors.
        slots: The table.
    """

    def __init__(self, sites: Sequence[Site], slots: Table) -> None:
        super().__init__()
        numbers, capacity = np.array([site.slot for site in sites], np.int32), slots.CAPACITY
        features = [numbers + i * capacity for i in range(len(FEATURES))]
        counts = [numbers, numbers + capacity]
        self.features_at, self.counts_at = Tensor(np.concatenate(features)), Tensor(np.concatenate(counts))
        self.each_at = tuple(Tensor(at) for at in (*features, *counts))
        self.ones, self.alone = Tensor(np.ones(len(sites), np.float32)), len(sites) == 1
        # When all is compiled a stage of a pipeline drops tensors of the others, from what takes several together too.
        self.apart = is_pipeline()
        # Scatter operators, for they are one kernel each: several calls of one layer in a graph run in any order.
        self.keep_worst, self.add = P.ScatterMax(), P.ScatterAdd()

    def construct(self, tensors, worst, tallies):
        """After the last of its writes."""
        if self.apart:
            return self.one_by_one(tensors[0], worst, tallies)
        if self.alone:
            features, bad = statistics_of(tensors[0])
            calls = P.Stack()((_ONE, bad))
        else:
            features, bads = _together(tensors)
            calls = P.Concat()((self.ones, bads))
        done = self.keep_worst(worst, self.features_at, features)
        return F.depend(self.add(tallies, self.counts_at, calls), done)

    def one_by_one(self, x, worst, tallies):
        """The same of one tensor, each number by itself."""
        largest, unit, squares, mean, bad = _reductions_in_pipeline(x)
        in_vector, at = P.ExpandDims(), self.each_at
        done = self.keep_worst(worst, at[0], in_vector(largest, 0))
        done = F.depend(self.keep_worst(worst, at[1], in_vector(unit * P.Sqrt()(squares), 0)), done)
        done = F.depend(self.keep_worst(worst, at[2], in_vector(unit * mean, 0)), done)
        done = F.depend(self.add(tallies, at[3], self.ones), done)
        return F.depend(self.add(tallies, at[4], in_vector(bad, 0)), done)


def _together(tensors):
    """The same as `statistics_of` of each, with all largest magnitudes first, then all norms and means."""
    largest, units, squares, means, bads = (), (), (), (), ()
    for x in tensors:
        one, unit, square, mean, bad = _reductions(x)
        largest, units, squares = (*largest, one), (*units, unit), (*squares, square)  # type: ignore[assignment]
        means, bads = (*means, mean), (*bads, bad)  # type: ignore[assignment]
    stack = P.Stack()
    of_each = stack(units)
    return P.Concat()((stack(largest), of_each * P.Sqrt()(stack(squares)), of_each * stack(means))), stack(bads)

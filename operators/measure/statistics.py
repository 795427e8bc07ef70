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
_ABS, _CAST, _FINITE, _SELECT, _LARGER, _SQRT = P.Abs(), P.Cast(), P.IsFinite(), P.Select(), P.Maximum(), P.Sqrt()
_MAX, _SUM, _MEAN, _STACK, _CONCAT = P.ReduceMax(), P.ReduceSum(), P.ReduceMean(), P.Stack(), P.Concat()
_EXPAND, _ZEROS = P.ExpandDims(), P.ZerosLike()


def statistics_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of one tensor.

    Args:
        x: Any shape, any floating-point type.

    Returns:
        float32 of shape (3,): largest finite magnitude, L2 norm and mean magnitude; norm and mean are `inf` or `nan`
        when an element is. And float32 of shape (), how many elements are not finite.
    """
    largest, unit, squares, mean, bad = _reductions(x)
    return _STACK((largest, unit * _SQRT(squares), unit * mean)), bad


def _reductions(x):
    """All that takes a whole tensor: five numbers of shape ().

    The squares are summed, and the mean taken, of x divided by the second number, so that none overflows or vanishes.
    Scalars stand for tensors of them, which the compiler would make constants, as large as x.
    """
    magnitude = _ABS(_CAST(x, ms.float32))
    finite = _FINITE(magnitude)
    largest = _MAX(_SELECT(finite, magnitude, _ZERO))  # it drops NaN on CPU: only finite ones get there
    # At least the smallest normal float32: a division may be made as a product with the reciprocal, which must be
    # finite.
    unit = _LARGER(largest, _SMALLEST)
    scaled = magnitude / unit
    bad = _SUM(_SELECT(finite, _ZERO, _ONE))
    return largest, unit, _SUM(scaled * scaled), _MEAN(scaled), bad


def _reductions_in_pipeline(x):
    """`_reductions` by operators that the passes of a pipeline know: they refuse a selection from a scalar."""
    g = _CAST(x, ms.float32)
    finite = _FINITE(g)
    zeros = _ZEROS(g)
    largest = _MAX(_ABS(_SELECT(finite, g, zeros)))
    unit = _LARGER(largest, _SMALLEST)
    scaled = g / unit
    bad = _SUM(1.0 - _CAST(finite, ms.float32))
    return largest, unit, _SUM(scaled * scaled), _MEAN(_ABS(scaled)), bad


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
            calls = _STACK((_ONE, bad))
        else:
            features, bads = _together(tensors)
            calls = _CONCAT((self.ones, bads))
        done = self.keep_worst(worst, self.features_at, features)
        return F.depend(self.add(tallies, self.counts_at, calls), done)

    def one_by_one(self, x, worst, tallies):
        """Writes the numbers of one tensor, each by itself."""
        largest, unit, squares, mean, bad = _reductions_in_pipeline(x)
        at = self.each_at
        done = self.keep_worst(worst, at[0], _EXPAND(largest, 0))
        done = F.depend(self.keep_worst(worst, at[1], _EXPAND(unit * _SQRT(squares), 0)), done)
        done = F.depend(self.keep_worst(worst, at[2], _EXPAND(unit * mean, 0)), done)
        done = F.depend(self.add(tallies, at[3], self.ones), done)
        return F.depend(self.add(tallies, at[4], _EXPAND(bad, 0)), done)


def _together(tensors):
    """The numbers of some tensors: all largest magnitudes first, then all norms, then all means."""
    largest, units, squares, means, bads = (), (), (), (), ()
    for x in tensors:
        one, unit, square, mean, bad = _reductions(x)
        largest, units, squares = (*largest, one), (*units, unit), (*squares, square)  # type: ignore[assignment]
        means, bads = (*means, mean), (*bads, bad)  # type: ignore[assignment]
    of_each = _STACK(units)
    return _CONCAT((_STACK(largest), of_each * _SQRT(_STACK(squares)), of_each * _STACK(means))), _STACK(bads)

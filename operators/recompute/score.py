"""What checks that are made of MindSpore operators share: signs, a tolerance, and how they tell a score."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812
from mindspore.ops.primitive import constexpr

from asd.operators.kernel.product import sign
from asd.operators.private.mixed_precision import CheckCell

__all__ = ["WriteScore", "deviation", "rounding_to", "signs_of"]

_DEVIATIONS = 12.0
_FLOOR = 1e-18
"""Of the deviation, relative to the operands: below it float32 has no squares."""


class WriteScore(CheckCell):
    """Writes a score into a slot, when it is due; returns a number that depends on it."""

    def __init__(self, slot: int) -> None:
        super().__init__()
        self.index, self.none = Tensor([slot], ms.int32), Tensor([0.0], ms.float32)
        self.select, self.gather = P.Select(), P.Gather()
        self.keep_worst, self.add = P.ScatterMax(), P.ScatterAdd()

    def construct(self, score, judged, worst, tallies, due):
        """Both of shape (1,): the score, and 1 where it says something, else 0."""
        counts = self.gather(due, self.index, 0) * judged
        done = self.keep_worst(worst, self.index, self.select(judged > 0, score, self.none) * counts)
        return F.depend(self.add(tallies, self.index, counts), done)


def rounding_to(dtype):
    """What rounding to a type adds relative to a number, and beside it."""
    if dtype == ms.bfloat16:
        return 2.0**-7, 2.0**-122
    if dtype == ms.float16:
        return 2.0**-10, 2.0**-23
    return 2.0**-23, 2.0**-122


@constexpr
def signs_of(count):
    """Those of the kernel, of shape (count, 1)."""
    return Tensor(np.array([[sign(j)] for j in range(count)], np.float32))


def deviation(squares, of_result, unit, *, terms, count, sum_unit=2.0**-24, coarse=0.0):
    """How far two signed sums of `count` results may be apart where nothing is computed again.

    Args:
        squares: Sum of the squares of all terms of these results.
        of_result: Sum of the squares of the results.
        unit: In the last place of a result.
        terms: That a result is the sum of.
        count: Results under one sum.
        sum_unit: What an addition may be off, relative to its sum.
        coarse: What two operands may be off together, relative to their product.

    Returns:
        12 deviations of the rounding of results and sums. Equal terms are all rounded alike, so half a place for each
        counts as well.
    """
    drift = sum_unit * terms / 2
    variance = (unit * unit / 12 + drift * drift + coarse * coarse / 4) * of_result
    variance = variance + sum_unit * sum_unit * 2 * (terms + count) / 9 * (squares + of_result)
    return _DEVIATIONS * (F.sqrt(variance + coarse * coarse / 6 * squares) + _FLOOR)

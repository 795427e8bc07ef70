"""What checks that are made of MindSpore operators share: signs, a tolerance, and how they tell a score.

Small numbers come into a graph as tensors: to the compiler two scalars less than 2.2e-16 apart may be the same argument
of a function, by the chance of a hash, be they of this package or of the user's network. What is computed from scalars
is computed in Python for that reason.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812
from mindspore.ops.primitive import constexpr

from asd.operators.kernel.product import sign
from asd.operators.private.mixed_precision import CheckCell

__all__ = ["SMALLEST", "WriteScore", "deviation", "rounding_to", "signs_of", "underflow_in"]

SMALLEST = Tensor(1e-18, ms.float32)
"""Relative to the operands: below it float32 has no squares."""
_DEVIATIONS = 12.0


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
    """What rounding to a type adds relative to a number; what it adds beside that tells `underflow_in`."""
    if dtype == ms.bfloat16:
        return 2.0**-7
    if dtype == ms.float16:
        return 2.0**-10
    return 2.0**-23


@constexpr
def underflow_in(dtype, terms=0):
    """What a number that is stored in a type may be off for being small, and each of its terms in float32."""
    return Tensor((2.0**-23 if dtype == ms.float16 else 2.0**-122) + terms * 2.0**-126, ms.float32)


@constexpr
def signs_of(count):
    """Those of the kernel, of shape (count, 1)."""
    return Tensor(np.array([[sign(j)] for j in range(count)], np.float32))


def deviation(squares, of_result, unit, *, terms, count, sum_unit=2.0**-24, coarse=0, alike=True):
    """How far two signed sums of `count` results may be apart where nothing is computed again.

    Args:
        squares: Sum of the squares of all terms of these results.
        of_result: Sum of the squares of the results.
        unit: In the last place of a result.
        terms: That a result is the sum of.
        count: Results under one sum.
        sum_unit: What an addition may be off, relative to its sum.
        coarse: What two operands may be off together, relative to their product.
        alike: Whether half a place for each term counts as well, for equal terms are all rounded alike.

    Returns:
        12 deviations of the rounding of results and sums.
    """
    of_results = _variance_of_results(unit, terms, count, sum_unit, coarse, alike)
    of_squares = _variance_of_squares(terms, count, sum_unit, coarse)
    return _DEVIATIONS * (F.sqrt(of_results * of_result + of_squares * squares) + SMALLEST)


@constexpr
def _variance_of_results(unit, terms, count, sum_unit, coarse, alike):
    drift = sum_unit * terms / 2 if alike else 0
    variance = unit * unit / 12 + drift * drift + coarse * coarse / 4
    return Tensor(variance + sum_unit * sum_unit * 2 * (terms + count) / 9, ms.float32)


@constexpr
def _variance_of_squares(terms, count, sum_unit, coarse):
    return Tensor(sum_unit * sum_unit * 2 * (terms + count) / 9 + coarse * coarse / 6, ms.float32)

"""Signs, a tolerance, and how a check of a result writes its score.

Small numbers come into a graph as tensors: to the compiler two scalars less than 2.2e-16 apart may be the same argument
of a function, by the chance of a hash, be they of this package or of the user's network. What is computed from scalars
is computed in Python for that reason.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812
from mindspore.ops.primitive import constexpr

from asd.operators.private.mixed_precision import CheckCell
from asd.operators.table.site import Site
from asd.operators.table.slots import table

__all__ = ["SMALLEST", "ResultCheck", "WriteScore", "deviation", "rounding_to", "sign", "signs_of", "underflow_in"]

SMALLEST = Tensor(1e-18, ms.float32)
"""Relative to the operands: below it float32 has no squares."""
_DEVIATIONS = 12.0
_WORD = 2**64 - 1


class ResultCheck(CheckCell):
    """Base class of the checks of results: judges tensors and writes scores into slots.

    Args:
        sites: Where the scores go.
    """

    def __init__(self, *sites: Site) -> None:
        super().__init__()
        self.sites, self.is_due = sites, table().is_due

    def __call__(self, *tensors: Tensor) -> Any:
        """In PyNative nothing is computed where it is not due."""
        return super().__call__(*tensors) if any(map(self.is_due, self.sites)) else tensors[-1]


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


def sign(column: int) -> float:
    """The sign of a column in the sums: 1 or -1, the same in each process."""
    x = 0x9E3779B97F4A7C15 * (column + 1) & _WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _WORD
    return -1.0 if (x ^ x >> 31) & 1 else 1.0


@constexpr
def signs_of(count):
    """The signs of so many columns, of shape (count, 1)."""
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

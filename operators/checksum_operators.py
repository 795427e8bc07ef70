"""The checksum of a product by MindSpore operators, for devices and installations without the C++ kernel.

The same rule as `checksum.cpp` in float32. It knows less about the rounding of C, and its own sums round too, so the
tolerance is wider by about half. It is computed in every step and counts when it is due. Only the worst row is computed
again, by elementwise products and a sum, which on an accelerator run on another unit than the product.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.product_check import BLOCK, FORMATS, kappa, sign
from asd.operators.slots import Site

__all__ = ["OperatorCheck"]

_UNIT = 2.0**-24  # of a sum in float32
_TINY = 2.0**-126
_HUGE = 3e38  # stands for a score that is not finite


class OperatorCheck(nn.Cell):
    """Judges a product when it is its turn and writes the score into a slot.

    Args:
        site: Where the score goes.
        transpose_a: Whether the first operand is stored transposed.
        transpose_b: Whether the second one is.
    """

    def __init__(self, site: Site, transpose_a: bool, transpose_b: bool) -> None:  # noqa: FBT001
        super().__init__(auto_prefix=False)
        self.slot = site.slot
        self.index = Tensor([site.slot], ms.int32)
        self.once = Tensor(1, ms.int32)
        self.none, self.infinity = Tensor([0.0], ms.float32), Tensor([np.inf], ms.float32)
        self.judge = _Judge(transpose_a, transpose_b)
        self.keep_worst, self.add, self.select = P.ScatterMax(), P.ScatterAdd(), P.Select()

    def construct(self, a, b, product, max_abs, l2, non_finite, calls, schedule):
        """A number that depends on all that was written."""
        every, turn, everything = schedule[0], schedule[1], schedule[2]
        turns = F.cast((self.slot + turn) % ops.maximum(every, self.once) == 0, ms.float32)
        due = ops.maximum(F.cast(everything > 0, ms.float32), F.cast(every > 0, ms.float32) * turns).reshape((1,))
        # No branch: with one for each product, a compiler takes minutes.
        score, judged = self.judge(a, b, product)
        counts = due * judged
        finite = counts * F.cast(score < _HUGE, ms.float32)
        largest = self.select(finite > 0, score, self.none)
        norm = self.select(counts > finite, self.infinity, largest)
        done = F.depend(self.none, self.keep_worst(max_abs, self.index, largest))
        done = F.depend(done, self.keep_worst(l2, self.index, norm))
        done = F.depend(done, self.add(non_finite, self.index, counts - finite))
        return F.depend(done, self.add(calls, self.index, counts))


class _Judge(nn.Cell):
    """Score and whether there is one, each float32 of shape (1,)."""

    def __init__(self, transpose_a: bool, transpose_b: bool) -> None:  # noqa: FBT001
        super().__init__(auto_prefix=False)
        self.transpose_a, self.transpose_b = transpose_a, transpose_b
        self.by_a = P.BatchMatMul(transpose_a)
        self.by_b = P.BatchMatMul(transpose_b)
        self.times = P.BatchMatMul()
        self.finite, self.select = P.IsFinite(), P.Select()

    def construct(self, a, b, product):
        shape = _shape(a.shape, product.shape, self.transpose_a)
        wide_a, wide_b, wide_c = _three(a), _three(b), _three(product)
        judged = F.cast(self.finite(ops.ReduceSum()(wide_a * 0)), ms.float32)
        judged = judged * F.cast(self.finite(ops.ReduceSum()(wide_b * 0)), ms.float32)
        # The scales are nearly powers of two, so that no square overflows or vanishes.
        scale_a, scale_b = _scale(wide_a), _scale(wide_b)
        wide_a, wide_b, wide_c = wide_a / scale_a, wide_b / scale_b, wide_c / scale_a / scale_b
        unit, largest = _format(product.dtype)
        residual, tolerance = self.residuals(wide_a, wide_b, wide_c, shape, unit, _TINY / scale_a / scale_b)
        score = residual / tolerance
        score = self.select(self.finite(score), score, F.full_like(score, _HUGE)).reshape(-1)
        worst = ops.Argmax(output_type=ms.int32)(score)
        value = ops.gather(score, worst, 0).reshape((1,))
        wrong = self.wrong(wide_a, wide_b, wide_c, worst, shape, unit, largest / scale_a / scale_b)
        value = self.select(F.logical_and(value > 1, wrong < 1), F.ones_like(value), value)
        return value, judged.reshape((1,))

    def residuals(self, a, b, c, shape, unit, tiny):
        """Residuals and their tolerances, each of shape (batches, m, blocks); `shape` is (batches, m, k, n)."""
        k = shape[2]
        signs, ones = _blocks(shape)
        squares = self.by_a(a * a, self.by_b(b * b, ones))
        expected = self.by_a(a, self.by_b(b, signs))
        squares_of_c = self.times(c * c, ones)
        sums = k / 9 + BLOCK / 9
        variance = unit * unit / 12 * squares_of_c + _UNIT * _UNIT * 2 * sums * (squares + squares_of_c)
        tolerance = _kappa(shape) * ops.sqrt(variance) + 16 * tiny * (k + 1)
        return ops.abs(self.times(c, signs) - expected), tolerance

    def wrong(self, a, b, c, worst, shape, unit, largest):
        """How many elements of the worst row no rounding explains."""
        _, m, k, n = shape
        row = worst // ((n + BLOCK - 1) // BLOCK)
        batch, row = row // m, row % m
        line = ops.gather(ops.gather(a, batch, 0), row, 1 if self.transpose_a else 0).reshape((k, 1))
        matrix = ops.gather(b, batch, 0)
        if self.transpose_b:
            matrix = ops.transpose(matrix, (1, 0))
        terms = line * matrix.reshape((k, n))
        exact, magnitude = ops.ReduceSum()(terms, 0), ops.ReduceSum()(ops.abs(terms), 0)
        found = ops.gather(ops.gather(c, batch, 0), row, 0).reshape((n,))
        finite = self.finite(found)
        error = self.select(finite, ops.abs(found - exact), F.full_like(found, _HUGE))
        size = ops.maximum(self.select(finite, ops.abs(found), ops.abs(exact)), ops.abs(exact))
        bound = unit * size + 2 * _UNIT * k**0.5 * magnitude
        return ops.ReduceSum()(F.cast(F.logical_and(error > bound, magnitude < largest), ms.float32)).reshape((1,))


@ms.constexpr
def _shape(shape_a, shape_c, transpose_a):
    batches = int(np.prod(shape_c[:-2], dtype=np.int64))
    return batches, shape_c[-2], shape_a[-2] if transpose_a else shape_a[-1], shape_c[-1]


@ms.constexpr
def _kappa(shape):
    batches, m, _, n = shape
    return kappa(batches * m * -(-n // BLOCK))


@ms.constexpr
def _blocks(shape):
    """Signs and ones of the columns, each in the column of its block; float32 of shape (batches, n, blocks)."""
    return _make_blocks(shape[0], shape[3])


@cache
def _make_blocks(batches: int, n: int) -> tuple[Tensor, Tensor]:
    ones = np.zeros((n, -(-n // BLOCK)), np.float32)
    columns = np.arange(n)
    ones[columns, columns // BLOCK] = 1
    signs = ones * np.array([sign(j) for j in columns], np.float32)[:, None]
    return Tensor(np.stack([signs] * batches)), Tensor(np.stack([ones] * batches))


@ms.constexpr
def _format(dtype: Any) -> tuple[float, float]:
    return FORMATS[str(dtype).lower()]


def _three(x: Any) -> Any:
    """In float32 and with one leading dimension."""
    return F.cast(x, ms.float32).reshape((-1, x.shape[-2], x.shape[-1]))


def _scale(x: Any) -> Any:
    largest = ops.maximum(P.ReduceMax()(ops.abs(x)), Tensor(1e-18, ms.float32))
    return ops.pow(Tensor(2.0, ms.float32), ops.floor(ops.log(largest) / 0.6931471805599453))

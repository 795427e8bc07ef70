"""The checksum of a product by MindSpore operators, for devices and installations without the C++ kernel.

The same sums with the same signs as in `product_check.cpp`, in float32, so the tolerance is wider. Of the worst sum the
elements are computed again, by elementwise products, which on an accelerator run on another unit than the product. A
product that is not finite is not judged, for it may just have overflowed: tier `finite` sees it. A compiled graph makes
the sums in every step; they count when they are due.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.kernel.product import BLOCK, sign
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.recompute.score import SMALLEST, WriteScore, deviation, rounding_to, underflow_in
from asd.operators.table.site import Site

__all__ = ["OperatorCheck"]

_UNIT = 2.0**-24  # of a sum in float32


class OperatorCheck(CheckCell):
    """Judges a product when it is its turn and writes the score into a slot.

    Args:
        site: Where the score goes.
        transpose_a: Whether the first operand is stored transposed.
        transpose_b: Whether the second one is.
    """

    def __init__(self, site: Site, transpose_a: bool, transpose_b: bool) -> None:  # noqa: FBT001
        super().__init__()
        self.transpose_a, self.transpose_b = transpose_a, transpose_b
        self.write = WriteScore(site.slot)
        self.signs = Tensor(np.array([sign(j) for j in range(BLOCK)], np.float32))
        self.one = Tensor([1.0], ms.float32)
        self.times, self.transpose, self.abs = P.BatchMatMul(), P.Transpose(), P.Abs()
        self.sum, self.largest, self.largest_kept = P.ReduceSum(), P.ReduceMax(), P.ReduceMax(keep_dims=True)
        self.finite, self.maximum = P.IsFinite(), P.Maximum()
        self.select, self.gather, self.minimum = P.Select(), P.Gather(), P.Minimum()
        self.where_largest = P.Argmax(output_type=ms.int32)

    def construct(self, a, b, product, worst, tallies, due):
        """A number that depends on all that was written."""
        score, judged = self.judge(a, b, product)
        return self.write(score, F.cast(judged, ms.float32), worst, tallies, due)

    def judge(self, a, b, product):
        """The worst residual as a multiple of its tolerance, and whether all elements are finite."""
        a, b, c = _three(a), _three(b), _three(product)
        if self.transpose_a:
            a = self.transpose(a, (0, 2, 1))
        if self.transpose_b:
            b = self.transpose(b, (0, 2, 1))
        judged = self.finite(self.sum(a * 0) + self.sum(b * 0) + self.sum(c * 0))
        k = a.shape[2]
        b, c = _blocks(b), _blocks(c)
        signs = self.signs[: b.shape[3]]
        # Every row and every block by its own largest element, so that no square overflows or vanishes.
        of_row = self.maximum(self.largest_kept(self.abs(a), 2), SMALLEST)
        of_block = self.maximum(self.largest_kept(self.abs(b), (1, 3)), SMALLEST)
        a, b = a / of_row, b / of_block
        of_row = of_row.reshape((*of_row.shape, 1))
        c = c / of_row / of_block
        residual = self.abs(self.sum(c * signs, 3) - self.times(a, self.sum(b * signs, 3)))
        squares, squares_of_c = self.times(a * a, self.sum(b * b, 3)), self.sum(c * c, 3)
        # Rounding of C; the sums of the product and of the check, each of k or of a block of terms.
        unit = rounding_to(product.dtype)
        steps = 8 * underflow_in(product.dtype, k) / of_row / of_block
        tolerance = deviation(squares, squares_of_c, unit, terms=k, count=BLOCK, alike=False)
        tolerance = tolerance + 12 * steps.reshape((*steps.shape[:2], steps.shape[2]))
        scores = (residual / tolerance).reshape(-1)
        worst = self.where_largest(scores).reshape((1,))
        score = self.gather(scores, worst, 0)
        error = self.error(a, b, c, worst, unit) - self.gather(steps.reshape(-1), worst, 0)
        return self.select(error > 0, score, self.minimum(score, self.one)), judged.reshape((1,))

    def error(self, a, b, c, worst, unit):
        """How much an element of a sum is further off than rounding explains, at most; negative if none is."""
        _, rows, blocks, columns = c.shape
        k = a.shape[2]
        line = self.gather(a.reshape((-1, k)), worst // blocks, 0).reshape((k, 1))
        matrix = self.gather(self.gather(b, worst // (blocks * rows), 0), worst % blocks, 2).reshape((k, columns))
        found = self.gather(c.reshape((-1, columns)), worst, 0).reshape((columns,))
        terms = line * matrix
        exact = self.sum(terms, 0)
        rounding = unit * self.maximum(self.abs(found), self.abs(exact))
        place = _UNIT * self.sum(self.abs(terms), 0)
        # Equal terms are rounded alike, in both sums, and small ones beside a large sum are lost one after the other.
        rounding = rounding + (2 * k**0.5 + k / 2) * place
        lost = self.minimum(self.abs(terms), place)
        rounding = rounding + self.sum(lost * F.cast(self.abs(terms) < 16 * place, ms.float32), 0)
        return self.largest(self.abs(found - exact) - rounding).reshape((1,))


def _three(x):
    """In float32 and with one leading dimension."""
    return F.cast(x, ms.float32).reshape((-1, x.shape[-2], x.shape[-1]))


def _blocks(x):
    """The columns in blocks: of shape (batches, rows, blocks, columns of a block)."""
    batches, rows, columns = x.shape
    if columns <= BLOCK:
        return x.reshape((batches, rows, 1, columns))
    if columns % BLOCK > 0:
        x = P.Pad(((0, 0), (0, 0), (0, BLOCK - columns % BLOCK)))(x)
    return x.reshape((batches, rows, -1, BLOCK))

"""A matrix product that is checked by its checksum: forward, and both products of the backward pass.

The results are those of the bare operator, bit for bit: the same operators are called in the same order on the same
operands, and each is only made to depend on its check. In PyNative a product is the bare operator itself where nothing
is due. Shapes, types and values of a product that can't be checked pass as they are.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.measure.tap import hidden
from asd.operators.private.mixed_precision import as_operator_reads, read, type_of_own_holder
from asd.operators.recompute.score import SMALLEST, ResultCheck, WriteScore, deviation, rounding_to, sign, underflow_in
from asd.operators.table.site import Site
from asd.operators.table.slots import table
from asd.rules.readings.reading import CHECKSUM

__all__ = ["CheckedProduct", "ProductCheck"]

_SUFFIX = ".checksum"
_PARTS = ("", "_dx", "_dw")
_UNIT = 2.0**-24  # of a sum in float32
_BLOCK = 256
"""Columns under one sum."""


class _Parts(nn.Cell):
    """The three products, all checked in the backward pass, which must be given the Parameters it writes.

    In the forward pass the compiler would put all that writes a Parameter in a row, and then sum the gradients of a
    value with several users in another order.

    Args:
        op: A `MatMul` or `BatchMatMul`.
        name: Name of the place.
    """

    def __init__(self, op: Any, name: str) -> None:
        super().__init__(auto_prefix=False)
        transpose_a, transpose_b = bool(op.transpose_a), bool(op.transpose_b)
        kind = P.MatMul if type(op).__name__ == "MatMul" else P.BatchMatMul
        emulate = ms.get_context("device_target") == "CPU"
        self.transpose_a, self.transpose_b = transpose_a, transpose_b
        self.sites: list[Site] = [table().new_site(name + _SUFFIX + part, CHECKSUM) for part in _PARTS]
        # As MindSpore differentiates the operator: the order of the operands follows from what is transposed.
        of_dx = (transpose_a and transpose_b, transpose_a or not transpose_b)
        of_dw = (not transpose_a or transpose_b, transpose_a and transpose_b)
        self.multiply = _Multiply(op, emulate=emulate)
        self.multiply_dx = _Multiply(kind(*of_dx), emulate=emulate)
        self.multiply_dw = _Multiply(kind(*of_dw), emulate=emulate)
        self.check = ProductCheck(self.sites[0], transpose_a, transpose_b)
        self.check_dx = ProductCheck(self.sites[1], *of_dx)
        self.check_dw = ProductCheck(self.sites[2], *of_dw)

    def rename(self, name: str) -> None:
        """Gives the checkpoints the name of another place."""
        for site, part in zip(self.sites, _PARTS, strict=True):
            site.name = name + _SUFFIX + part

    def construct(self, x, w, worst, tallies, due):
        return self.multiply(x, w)

    def bprop(self, x, w, worst, tallies, due, out, dout):
        slots = (worst, tallies, due)
        dout = F.depend(dout, self.check(x, w, out, *slots))
        if self.transpose_a:
            dx = self.multiply_dx(w, dout)
            dx = F.depend(dx, self.check_dx(w, dout, dx, *slots))
        else:
            dx = self.multiply_dx(dout, w)
            dx = F.depend(dx, self.check_dx(dout, w, dx, *slots))
        if self.transpose_b:
            dw = self.multiply_dw(dout, x)
            dw = F.depend(dw, self.check_dw(dout, x, dw, *slots))
        else:
            dw = self.multiply_dw(x, dout)
            dw = F.depend(dw, self.check_dw(x, dout, dw, *slots))
        return dx, dw, F.zeros_like(worst), F.zeros_like(tallies), F.zeros_like(due)


class CheckedProduct(nn.Cell):
    """`op(x, w)` with its checks.

    Args:
        op: A `MatMul` or `BatchMatMul`.
        name: Name of the place; its checkpoints are `name.checksum`, `name.checksum_dx` and `name.checksum_dw`.

    Attributes:
        parts: The products themselves.
        sites: The checkpoints of y, dx and dw.
        holder: The cell whose code calls it; None where that is not known.
    """

    parameter_type = property(type_of_own_holder)
    """What a compiled graph casts a Parameter to where it is called; None where it casts nothing."""

    def __init__(self, op: Any, name: str) -> None:
        super().__init__(auto_prefix=False)
        slots = table()
        self.parts = _Parts(op, name)
        self.slots = hidden(slots.worst, slots.tallies, slots.due)
        self.sites = self.parts.sites
        self.is_due = slots.is_due  # of the table it was made for, whichever is the process's later
        self.holder: Any = None

    def __call__(self, x, w):
        """`op(x, w)` in PyNative, without the cost of a backward pass in Python where nothing is due in this step."""
        if any(map(self.is_due, self.sites)):
            return super().__call__(*as_operator_reads(x, w))
        return self.parts.multiply.bare(x, w)

    def construct(self, x, w):
        """`op(x, w)` with its checks."""
        x, w = read(x, self.parameter_type), read(w, self.parameter_type)
        return self.parts(x, w, *self.slots())


class _Multiply(nn.Cell):
    """The operator; bfloat16 on a CPU, which has no kernel for it, is a float32 product that is rounded."""

    def __init__(self, op: Any, *, emulate: bool) -> None:
        super().__init__(auto_prefix=False)
        self.op = op
        self.emulate = emulate

    def bare(self, a, b):
        """Multiplies in PyNative, without the cost of a cell."""
        return self(a, b) if self.emulate and a.dtype == ms.bfloat16 else self.op(a, b)

    def construct(self, a, b):
        if self.emulate and F.dtype(a) == ms.bfloat16:
            return F.cast(self.op(F.cast(a, ms.float32), F.cast(b, ms.float32)), ms.bfloat16)
        return self.op(a, b)


class ProductCheck(ResultCheck):
    """Judges a product when it is its turn and writes the score into a slot.

    Of the worst sum the elements are computed again, by elementwise products, which on an accelerator run on another
    unit than the product. A product that is not finite is not judged, for it may just have overflowed: tier `finite`
    sees it. A compiled graph makes the sums in every step; they count when they are due.

    Args:
        site: Where the score goes.
        transpose_a: Whether the first operand is stored transposed.
        transpose_b: Whether the second one is.
    """

    def __init__(self, site: Site, transpose_a: bool, transpose_b: bool) -> None:  # noqa: FBT001
        super().__init__(site)
        self.transpose_a, self.transpose_b = transpose_a, transpose_b
        self.write = WriteScore(site.slot)
        self.signs = Tensor(np.array([sign(j) for j in range(_BLOCK)], np.float32))
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
        tolerance = deviation(squares, squares_of_c, unit, terms=k, count=_BLOCK, alike=False)
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
    if columns <= _BLOCK:
        return x.reshape((batches, rows, 1, columns))
    if columns % _BLOCK > 0:
        x = P.Pad(((0, 0), (0, 0), (0, _BLOCK - columns % _BLOCK)))(x)
    return x.reshape((batches, rows, -1, _BLOCK))

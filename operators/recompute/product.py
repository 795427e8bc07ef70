"""A matrix product that is checked by its checksum: forward, and both products of the backward pass.

The results are those of the bare operator, bit for bit: the same operators are called in the same order on the same
operands, and each is only made to depend on its check. In PyNative a product is the bare operator itself where nothing
is due. Shapes, types and values of a product that can't be checked pass as they are.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.measure.tap import hidden
from asd.operators.private.mixed_precision import as_operator_reads, read, type_of_own_holder
from asd.operators.recompute.kernel_check import KernelCheck
from asd.operators.recompute.product_operators import OperatorCheck
from asd.operators.table.site import Site
from asd.operators.table.slots import by_backend, table
from asd.rules.readings.reading import CHECKSUM

__all__ = ["CheckedProduct"]

_SUFFIX = ".checksum"
_PARTS = ("", "_dx", "_dw")


class _Parts(nn.Cell):
    """The three products and what is known about them.

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
        check = by_backend(kernel=lambda _: _KernelCheck, operators=lambda _: OperatorCheck)
        self.check = check(self.sites[0], transpose_a, transpose_b)
        self.check_dx = check(self.sites[1], *of_dx)
        self.check_dw = check(self.sites[2], *of_dw)

    def rename(self, name: str) -> None:
        """Gives the checkpoints the name of another place."""
        for site, part in zip(self.sites, _PARTS, strict=True):
            site.name = name + _SUFFIX + part


class _KernelProduct(_Parts):
    """With the checks of the C++ kernel."""

    def construct(self, x, w):
        y = self.multiply(x, w)
        return F.depend(y, self.check(x, w, y))

    def bprop(self, x, w, out, dout):
        if self.transpose_a:
            dx = self.multiply_dx(w, dout)
            dx = F.depend(dx, self.check_dx(w, dout, dx))
        else:
            dx = self.multiply_dx(dout, w)
            dx = F.depend(dx, self.check_dx(dout, w, dx))
        if self.transpose_b:
            dw = self.multiply_dw(dout, x)
            dw = F.depend(dw, self.check_dw(dout, x, dw))
        else:
            dw = self.multiply_dw(x, dout)
            dw = F.depend(dw, self.check_dw(x, dout, dw))
        return dx, dw


class _OperatorProduct(_Parts):
    """With checks made of operators, all of them in the backward pass, which must be given the Parameters they write.

    In the forward pass the compiler would put all that writes a Parameter in a row, and then sum the gradients of a
    value with several users in another order.
    """

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
        kind = by_backend(kernel=lambda _: _KernelProduct, operators=lambda _: _OperatorProduct)
        self.parts = kind(op, name)
        self.slots = by_backend(
            kernel=lambda _: hidden(), operators=lambda each: hidden(each.worst, each.tallies, each.due)
        )
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
        """The same in PyNative, without the cost of a cell."""
        return self(a, b) if self.emulate and a.dtype == ms.bfloat16 else self.op(a, b)

    def construct(self, a, b):
        if self.emulate and F.dtype(a) == ms.bfloat16:
            return F.cast(self.op(F.cast(a, ms.float32), F.cast(b, ms.float32)), ms.bfloat16)
        return self.op(a, b)


class _KernelCheck(KernelCheck):
    """Of one of the three products."""

    def __init__(self, site: Site, transpose_a: bool, transpose_b: bool) -> None:  # noqa: FBT001
        super().__init__("asd_checksum", [site], [int(transpose_a), int(transpose_b)])

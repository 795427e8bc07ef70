"""A convolution that is checked by signed sums over its channels: forward, and its two gradients."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn
from mindspore import dtype as types

from asd.measured.reading import CONVOLUTION
from asd.operators.measure.tap import kernel_function
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.recompute.call import CheckedCall
from asd.operators.recompute.convolution_operators import OperatorConvolution
from asd.operators.table.site import Site

__all__ = ["checked_convolution"]


def checked_convolution(op: Any, name: str) -> CheckedCall:
    """`op(x, w)` with its checks; see `asd.operators.kernel.convolution.check_convolution`.

    Args:
        op: A `Conv2D` of the format NCHW.
        name: Name of the place.
    """

    def by_kernel(site: Site, part: int) -> nn.Cell:
        return _KernelCheck(site, part, op)

    def by_operators(site: Site, part: int) -> nn.Cell:
        return OperatorConvolution(site, part, op)

    return CheckedCall(op, name, CONVOLUTION, by_kernel=by_kernel, by_operators=by_operators)


class _KernelCheck(CheckCell):
    """Hands operands and result to the C++ library, which knows whether it is their turn."""

    def __init__(self, site: Site, part: int, op: Any) -> None:
        super().__init__()
        self.look = kernel_function("asd_convolution")
        padded = (0, 0) if op.pad_mode != "pad" else (op.pad[0], op.pad[2])
        kind = (*op.stride[2:], *op.dilation[2:], *padded, int(op.pad_mode == "same"), op.group)
        self.place = Tensor([site.slot, part, *kind], types.int32)

    def construct(self, a, b, result):
        return self.look(a, b, result, self.place)

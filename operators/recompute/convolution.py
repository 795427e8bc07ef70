"""A convolution that is checked by signed sums over its channels: forward, and its two gradients.

The sums are made in float32, by convolutions with one channel for each group. The tolerance is 12 deviations, and what
equal terms that are all rounded alike come to, half a place for each of them. A result that is not finite is not
judged: tier `finite` sees it. A compiled graph computes this in every step; it counts when it is due.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.backward import Conv2DBackpropFilter
from asd.operators.recompute.call import CheckedCall
from asd.operators.recompute.score import (
    SMALLEST,
    ResultCheck,
    WriteScore,
    deviation,
    rounding_to,
    signs_of,
    underflow_in,
)
from asd.operators.table.site import Site
from asd.rules.readings.reading import CONVOLUTION

__all__ = ["ConvolutionCheck", "checked_convolution"]

_COARSE = 2.0**-10
"""What two operands may be off together where they are narrower than they look: float16, see `docs/checksum.md`, and
float32 on a device whose convolutions read fewer digits of it, as MindSpore lets an Ascend do unless told otherwise."""


def checked_convolution(op: Any, name: str) -> CheckedCall:
    """`op(x, w)` with its checks.

    Args:
        op: A `Conv2D` of the format NCHW.
        name: Name of the place.
    """

    def check(site: Site, part: int) -> nn.Cell:
        return ConvolutionCheck(site, part, op)

    return CheckedCall(op, name, CONVOLUTION, check=check)


class ConvolutionCheck(ResultCheck):
    """Judges a convolution, or one of its gradients, when it is its turn and writes the score into a slot.

    Args:
        site: Where the score goes.
        part: 0 for y from x and w, 1 for dx from w and dy, 2 for dw from x and dy.
        op: The `Conv2D`.
    """

    def __init__(self, site: Site, part: int, op: Any) -> None:
        super().__init__(site)
        self.part, self.groups, self.taps = part, op.group, op.kernel_size[0] * op.kernel_size[1]
        self.kernel_size, self.outputs = op.kernel_size, op.out_channel // op.group
        self.write = WriteScore(site.slot)
        self.on_cpu = ms.get_context("device_target") == "CPU"
        given = {"kernel_size": op.kernel_size, "mode": op.mode, "pad_mode": op.pad_mode, "pad": op.pad}
        given |= {"stride": op.stride[2:], "dilation": op.dilation[2:], "group": op.group}
        self.forward = P.Conv2D(out_channel=op.group, **given)
        self.to_input = P.Conv2DBackpropInput(out_channel=op.out_channel, **given)
        padded = op.pad if op.pad_mode == "pad" else (0, 0, 0, 0)
        self.to_weights = Conv2DBackpropFilter(out_channel=op.group, pad_list=padded, **given)
        self.abs, self.sum, self.largest, self.finite = P.Abs(), P.ReduceSum(), P.ReduceMax(), P.IsFinite()
        self.maximum = P.Maximum()

    def construct(self, a, b, result, worst, tallies, due):
        """A number that depends on all that was written."""
        score, judged = self.judge(a, b, result)
        return self.write(score, judged, worst, tallies, due)

    def judge(self, a, b, result):
        """The worst residual as a multiple of its tolerance, and 1 where all elements are finite, else 0."""
        terms = self.terms(a, b)
        unit, step = rounding_to(result.dtype), underflow_in(result.dtype, terms)
        narrow = a.dtype != ms.float32 or b.dtype != ms.float32 or not self.on_cpu
        coarse = _COARSE if narrow else 0
        a, b, result = F.cast(a, ms.float32), F.cast(b, ms.float32), F.cast(result, ms.float32)
        judged = self.finite(self.sum(a * 0) + self.sum(b * 0) + self.sum(result * 0))
        channels = result.shape[1] // self.groups if self.part == 1 else self.outputs
        signs, ones = signs_of(channels), F.ones((channels, 1), ms.float32)
        # By their largest elements, so that no square overflows or vanishes.
        of_a = self.maximum(self.largest(self.abs(a)), SMALLEST)
        of_b = self.maximum(self.largest(self.abs(b)), SMALLEST)
        a, b, result = a / of_a, b / of_b, result / of_a / of_b
        residual = self.abs(self.add_up(result, channels, signs) - self.multiply(a, b, result, signs))
        squares, of_result = self.multiply(a * a, b * b, result, ones), self.add_up(result * result, channels, ones)
        tolerance = deviation(squares, of_result, unit, terms=terms, count=channels, coarse=coarse)
        tolerance = tolerance + 192 * step / of_a / of_b
        return self.largest(residual / tolerance).reshape((1,)), F.cast(judged, ms.float32).reshape((1,))

    def terms(self, a, b):
        """Of which an element of the result is the sum."""
        if self.part == 0:
            return b.shape[1] * self.taps
        if self.part == 1:
            return self.outputs * self.taps
        return b.shape[0] * b.shape[2] * b.shape[3]

    def multiply(self, a, b, result, signs):
        """The signed sum over the channels of the result, by one convolution."""
        if self.part == 0:
            return self.forward(a, self.of_outputs(b, signs))
        if self.part == 1:
            weights = self.sum(a.reshape((a.shape[0], a.shape[1], self.taps)) * signs, 1)
            shape = (result.shape[0], self.groups, result.shape[2], result.shape[3])
            return self.to_input(b, weights.reshape((a.shape[0], 1, *self.kernel_size)), shape)
        shape = (self.groups, *result.shape[1:])
        return self.to_weights(self.of_planes(b, self.outputs, signs), a, shape)

    def add_up(self, result, channels, signs):
        """The signed sum of the result itself."""
        return self.of_outputs(result, signs) if self.part == 2 else self.of_planes(result, channels, signs)

    def of_outputs(self, weights, signs):
        """Over the outputs of each group."""
        flat = weights.reshape((self.groups, self.outputs, -1)) * signs
        return self.sum(flat, 1).reshape((self.groups, *weights.shape[1:]))

    def of_planes(self, x, channels, signs):
        """Over the channels of each group, at each place."""
        flat = x.reshape((x.shape[0], self.groups, channels, x.shape[2] * x.shape[3])) * signs
        return self.sum(flat, 2).reshape((x.shape[0], self.groups, x.shape[2], x.shape[3]))

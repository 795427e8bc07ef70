"""Cells whose results can be seen and replaced from outside, inside one compiled graph.

A probe is an extra argument of such a cell, in the shape of one result. Its gradient is that result, so everything a
training step computes comes out of one call. In a network built with `override`, the probe whose number equals `code`
also takes the place of the result: a fault needs no second compilation, and any pattern is possible.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops
from mindspore.ops import operations as P  # noqa: N812
from mindspore.ops.operations import _grad_ops as G  # noqa: N812

__all__ = ["Convolution", "GradientTap", "Product", "ValueTap"]


class Site(nn.Cell):
    """What the cells share: their first probe, rounding, and the choice between a result and its probe.

    Args:
        at: Number of the first probe.
        rounded: Whether results are rounded to bfloat16, which the CPU's matrix product lacks.
        override: Whether a probe can take the place of a result.
    """

    def __init__(self, at: int, rounded: bool, override: bool) -> None:
        super().__init__(auto_prefix=False)
        self.at, self.rounded, self.override = at, rounded, override

    def settle(self, value, probe, code, number):
        """The result as it leaves the unit that computed it."""
        if self.rounded:
            value = ops.cast(ops.cast(value, ms.bfloat16), ms.float32)
        if self.override:
            value = ops.select(ops.broadcast_to(code == self.at + number, value.shape), probe, value)
        return value


class Product(Site):
    """`a @ b`; the probes are those of the product, of the gradient of a, and of the gradient of b."""

    def __init__(self, at: int, rounded: bool, override: bool, batched: bool) -> None:
        super().__init__(at, rounded, override)
        operator = P.BatchMatMul if batched else P.MatMul
        self.forward, self.left, self.right = operator(), operator(transpose_b=True), operator(transpose_a=True)

    def construct(self, a, b, out_probe, a_probe, b_probe, code):
        return self.settle(self.forward(a, b), out_probe, code, 0)

    def bprop(self, a, b, out_probe, a_probe, b_probe, code, out, dout):
        da = self.settle(self.left(dout, b), a_probe, code, 1)
        db = self.settle(self.right(a, dout), b_probe, code, 2)
        return da, db, dout, da, db, ops.zeros_like(code)


class Convolution(Site):
    """A 3 x 3 convolution that keeps the size; the probes are as those of `Product`."""

    def __init__(self, at: int, rounded: bool, override: bool, channels: int, stride: int) -> None:
        super().__init__(at, rounded, override)
        options = {"out_channel": channels, "kernel_size": 3, "pad_mode": "same", "stride": stride}
        self.forward = P.Conv2D(**options)
        self.left = P.Conv2DBackpropInput(**options)
        self.right = G.Conv2DBackpropFilter(**options)

    def construct(self, a, b, out_probe, a_probe, b_probe, code):
        return self.settle(self.forward(a, b), out_probe, code, 0)

    def bprop(self, a, b, out_probe, a_probe, b_probe, code, out, dout):
        da = self.settle(self.left(dout, b, a.shape), a_probe, code, 1)
        db = self.settle(self.right(dout, a, b.shape), b_probe, code, 2)
        return da, db, dout, da, db, ops.zeros_like(code)


class GradientTap(Site):
    """Identity; its probe is that of the gradient. Stands before a norm."""

    def construct(self, x, probe, code):
        return x

    def bprop(self, x, probe, code, out, dout):
        gradient = self.settle(dout, probe, code, 0)
        return gradient, gradient, ops.zeros_like(code)


class ValueTap(Site):
    """Identity; its probe is that of the value."""

    def construct(self, x, probe, code):
        return self.settle(x, probe, code, 0)

    def bprop(self, x, probe, code, out, dout):
        return dout, ops.zeros_like(probe), ops.zeros_like(code)

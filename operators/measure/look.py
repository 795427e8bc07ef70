"""The look: an identity whose value is looked at on its way forward, and the look at gradients that arrive.

`make_look(site)` returns a callable `x -> x` that writes the four numbers of x into the site's slot. Compiled it has a
backward pass of its own, which hands the gradient on bit for bit: the compiler knows no gradient of the kernel's
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.measure.tap import Write, alias, hidden, kernel_function, observe_tensor
from asd.operators.private.layout import is_pipeline
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.table.operator_table import OperatorTable
from asd.operators.table.site import Site
from asd.operators.table.slots import by_backend

__all__ = ["LookAndTap", "make_look", "make_observer"]


def make_look(site: Site) -> nn.Cell:
    """An identity that reports its input to `site`."""
    made: nn.Cell = by_backend(kernel=lambda _: _KernelLook(site), operators=lambda each: _OperatorLook(site, each))
    return made


def make_observer(site: Site) -> Callable[[Any], Any]:
    """A function that reports a tensor to `site` and returns a tensor that is ready when that is done."""
    return by_backend(kernel=lambda _: _kernel_observer(site), operators=lambda each: _OperatorLook(site, each).report)


def _kernel_observer(site: Site) -> Callable[[Any], Any]:
    observe, slot = kernel_function("asd_observe"), Tensor([site.slot], ms.int32)

    def report(x):
        return observe(x, slot)

    return report


class LookAndTap(CheckCell):
    """A look at the value and a tap on its gradient."""

    def __init__(self, look: nn.Cell, tap: Any) -> None:
        super().__init__()
        self.look, self.tap = look, tap
        self.site = tap.site

    def construct(self, x):
        """The same tensor."""
        return self.tap(self.look(x))


class _KernelLook(CheckCell):
    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site
        self.observe = kernel_function("asd_observe")
        self.slot = Tensor([site.slot], ms.int32)

    def __call__(self, x):
        """In PyNative, without the cost of a backward pass in Python."""
        if x.dtype == ms.bfloat16:  # NumPy has none: it is read, and kept as evidence, as what it is
            return super().__call__(x)
        if x.size > 0:
            observe_tensor(self.site.slot, x)
        return x

    def construct(self, x):
        """By the kernel as an operator."""
        if 0 in x.shape:
            return alias(x)
        return F.depend(alias(x), self.observe(x, self.slot))

    def bprop(self, x, out, dout):
        return (dout,)


class _OperatorLook(CheckCell):
    """The look made of MindSpore operators; in a compiled graph at a value whose gradient arrives.

    What writes a Parameter in the forward pass of a compiled graph is put in a row by the compiler, which then sums the
    gradients of a value with several users in another order. And the passes of semi-automatic parallel would gather
    what is divided over the ranks to look at it, where now each rank looks at its own part. Until its gradient is there
    the value is kept; under recomputation it is the recomputed one. One that gets no gradient is not looked at.
    """

    def __init__(self, site: Site, slots: OperatorTable) -> None:
        super().__init__()
        self.site = site
        self.slots = hidden(*slots.values)
        self.write = Write(site.slot)
        self.seen = _SeenLater(self.write)

    def __call__(self, x):
        """In PyNative, at once."""
        if x.size > 0:
            self.report(F.stop_gradient(x))
        return x

    def construct(self, x):
        if 0 in x.shape:
            return x
        max_abs, l2, mean_abs, non_finite, calls = self.slots()
        return self.seen(x, max_abs, l2, mean_abs, non_finite, calls)

    def report(self, x):
        max_abs, l2, mean_abs, non_finite, calls = self.slots()
        return self.write(x, max_abs, l2, mean_abs, non_finite, calls)


class _SeenLater(CheckCell):
    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write = write
        self.in_pipeline = is_pipeline()

    def construct(self, x, max_abs, l2, mean_abs, non_finite, calls):
        return alias(x, in_pipeline=self.in_pipeline)

    def bprop(self, x, max_abs, l2, mean_abs, non_finite, calls, out, dout):
        gradient = F.depend(dout, self.write(x, max_abs, l2, mean_abs, non_finite, calls))
        zeros = F.zeros_like(max_abs), F.zeros_like(l2), F.zeros_like(mean_abs), F.zeros_like(non_finite)
        return gradient, *zeros, F.zeros_like(calls)

"""The look: an identity whose value is looked at on its way forward, and the look at gradients that arrive.

`make_look(site)` returns a callable `x -> x` that writes the four numbers of x into the site's slot. Compiled it has a
backward pass of its own, which hands the gradient on bit for bit: the compiler knows no gradient of the kernel's
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.operator_table import OperatorTable
from asd.operators.site import Site
from asd.operators.slots import table
from asd.operators.tap import Look, OperatorReport, alias, hidden, kernel_function, observe_tensor

__all__ = ["LookAndTap", "make_look", "make_observer"]


def make_look(site: Site) -> nn.Cell:
    """An identity that reports its input to `site`."""
    chosen = table()
    return _OperatorLook(site, chosen) if isinstance(chosen, OperatorTable) else _KernelLook(site)


def make_observer(site: Site) -> Callable[[Any], Any]:
    """A function that reports a tensor to `site` and returns a tensor that is ready when that is done."""
    chosen = table()
    if isinstance(chosen, OperatorTable):
        return OperatorReport(site, chosen)
    observe, slot = kernel_function("asd_observe"), Tensor([site.slot], ms.int32)

    def report(x):
        return observe(x, slot)

    return report


class LookAndTap(nn.Cell):
    """A look at the value and a tap on its gradient."""

    def __init__(self, look: nn.Cell, tap: Any) -> None:
        super().__init__(auto_prefix=False)
        self.look, self.tap = look, tap
        self.site = tap.site

    def construct(self, x):
        """The same tensor."""
        return self.tap(self.look(x))


class _KernelLook(nn.Cell):
    def __init__(self, site: Site) -> None:
        super().__init__(auto_prefix=False)
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


class _OperatorLook(nn.Cell):
    """The look made of MindSpore operators.

    In a graph it is a tap whose backward pass is called at once, with the value itself for a gradient. The passes of
    semi-automatic parallel give every operator of the forward pass a strategy, and gather what is split where they know
    none; a backward pass they leave as it is, so that each rank looks at its own part and no collective is added.
    """

    def __init__(self, site: Site, slots: OperatorTable) -> None:
        super().__init__(auto_prefix=False)
        self.site = site
        self.slots = hidden(*slots.values)
        self.seen, self.report = _Seen(site.slot), OperatorReport(site, slots)

    def __call__(self, x):
        """In PyNative, which has no such passes."""
        if x.size > 0:
            self.report(F.stop_gradient(x))
        return x

    def construct(self, x):
        if 0 in x.shape:
            return x
        max_abs, l2, mean_abs, non_finite, calls = self.slots()
        return self.seen(x, max_abs, l2, mean_abs, non_finite, calls)


class _Seen(nn.Cell):
    """Identity of its first input, which is written into the slot; its gradient is handed on as it is."""

    def __init__(self, slot: int) -> None:
        super().__init__(auto_prefix=False)
        self.look = Look(slot)
        self.backwards = ops.GradOperation(sens_param=True)

    def construct(self, x, max_abs, l2, mean_abs, non_finite, calls):
        written = self.backwards(self.look)(x, max_abs, l2, mean_abs, non_finite, calls, x)
        return F.depend(alias(x), written)

    def bprop(self, x, max_abs, l2, mean_abs, non_finite, calls, out, dout):
        # The operator, not the function: MindSpore 2.9 loses a graph that two nested backward passes call.
        zeros = P.ZerosLike()
        return dout, zeros(max_abs), zeros(l2), zeros(mean_abs), zeros(non_finite), zeros(calls)

"""The look: an identity whose value is looked at on its way forward, and the look at gradients that arrive.

`make_look(site)` returns a callable `x -> x` that writes the four numbers of x into the site's slot. Compiled it has a
backward pass of its own, which hands the gradient on bit for bit: the compiler knows no gradient of the kernel's
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.operator_table import OperatorTable
from asd.operators.site import Site
from asd.operators.slots import table
from asd.operators.tap import alias, hidden, kernel_function, observe_tensor, statistics_by_operators

__all__ = ["LookAndTap", "make_look", "make_observer"]


def make_look(site: Site) -> nn.Cell:
    """An identity that reports its input to `site`."""
    chosen = table()
    return _OperatorLook(site, chosen) if isinstance(chosen, OperatorTable) else _KernelLook(site)


def make_observer(site: Site) -> Callable[[Any], Any]:
    """A function that reports a tensor to `site` and returns a tensor that is ready when that is done."""
    chosen = table()
    if isinstance(chosen, OperatorTable):
        return _OperatorLook(site, chosen).report
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
    def __init__(self, site: Site, slots: OperatorTable) -> None:
        super().__init__(auto_prefix=False)
        self.site = site
        self.slots = hidden(*slots.values)
        self.index = Tensor([site.slot], ms.int32)
        self.one = Tensor(np.ones(1, np.float32))
        self.keep_worst, self.add = P.ScatterMax(), P.ScatterAdd()

    def construct(self, x):
        if 0 in x.shape:
            return x
        return F.depend(x, self.report(F.stop_gradient(x)))

    def report(self, x):
        max_abs, l2, mean_abs, non_finite, calls = self.slots()
        largest, norm, mean, bad = statistics_by_operators(x)
        done = self.keep_worst(max_abs, self.index, largest)
        done = F.depend(self.keep_worst(l2, self.index, norm), done)
        done = F.depend(self.keep_worst(mean_abs, self.index, mean), done)
        done = F.depend(self.add(non_finite, self.index, bad), done)
        return F.depend(self.add(calls, self.index, self.one), done)

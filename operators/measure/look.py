"""The look: an identity whose value is looked at on its way forward, and the look at gradients that arrive.

`make_look(site)` returns a callable `x -> x` that writes the four numbers of x into the site's slot. Compiled it has a
backward pass of its own, which hands the gradient on bit for bit: the compiler knows no gradient of the kernel's
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.measure.statistics import Write
from asd.operators.measure.tap import alias, divided_tap, hidden, kernel_function, observe_tensor
from asd.operators.private.layout import is_pipeline, operators_are_divided
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.table.operator_table import OperatorTable
from asd.operators.table.site import Site
from asd.operators.table.slots import by_backend

__all__ = ["LookAndTap", "make_look", "make_observer"]


def make_look(site: Site) -> nn.Cell:
    """An identity that reports its input to `site`."""
    made: nn.Cell = by_backend(kernel=lambda _: _KernelLook(site), operators=lambda each: _operator_look(site, each))
    return made


def _operator_look(site: Site, slots: OperatorTable) -> Any:
    return divided_tap(site, slots, of_value=True) if operators_are_divided() else _OperatorLook(site, slots)


def make_observer(sites: Sequence[Site]) -> Callable[[Any], Any]:
    """A function that reports as many tensors to `sites` and returns a tuple that is ready when that is done."""
    return by_backend(kernel=lambda _: _kernel_observer(sites), operators=lambda each: _operator_observer(sites, each))


def _kernel_observer(sites: Sequence[Site]) -> Callable[[Any], Any]:
    observe, slots = kernel_function("asd_observe"), tuple(Tensor([site.slot], ms.int32) for site in sites)

    def report(tensors):
        seen = ()
        for i in range(len(slots)):
            seen = (*seen, observe(tensors[i], slots[i]))  # type: ignore[assignment]
        return seen

    return report


def _operator_observer(sites: Sequence[Site], table: OperatorTable) -> Callable[[Any], Any]:
    slots = hidden(table.worst, table.tallies)
    apart = is_pipeline()
    writes = tuple(Write([site], table) for site in sites) if apart else (Write(sites, table),)

    def report(tensors):
        worst, tallies = slots()
        seen = ()
        if not apart:
            seen = (writes[0](tensors, worst, tallies),)  # type: ignore[assignment]
        else:
            for i in range(min(len(writes), len(tensors))):
                seen = (*seen, writes[i]((tensors[i],), worst, tallies))  # type: ignore[assignment]
        return seen

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
        self.slots = hidden(slots.worst, slots.tallies)
        self.write = Write([site], slots)
        self.seen = _SeenLater(self.write)

    def __call__(self, x):
        """In PyNative, at once."""
        if x.size > 0:
            worst, tallies = self.slots()
            self.write((F.stop_gradient(x),), worst, tallies)
        return x

    def construct(self, x):
        if 0 in x.shape:
            return x
        worst, tallies = self.slots()
        return self.seen(x, worst, tallies)


class _SeenLater(CheckCell):
    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write = write

    def construct(self, x, worst, tallies):
        return alias(x)

    def bprop(self, x, worst, tallies, out, dout):
        gradient = F.depend(dout, self.write((x,), worst, tallies))
        return gradient, F.zeros_like(worst), F.zeros_like(tallies)

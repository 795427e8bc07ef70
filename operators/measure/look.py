"""The look: an identity whose value is looked at on its way forward, and the look at gradients that arrive.

`make_look(site)` returns a callable `x -> x` that writes the numbers of x into the site's slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import nn
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.measure.statistics import Write
from asd.operators.measure.tap import alias, divided_tap, hidden
from asd.operators.private.layout import is_pipeline, operators_are_divided
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.table.site import Site
from asd.operators.table.slots import Table, table

__all__ = ["LookAndTap", "make_look", "make_observer"]


def make_look(site: Site) -> nn.Cell:
    """An identity that reports its input to `site`."""
    slots = table()
    made: nn.Cell = divided_tap(site, slots, of_value=True) if operators_are_divided() else _Look(site, slots)
    return made


def make_observer(sites: Sequence[Site]) -> Callable[[Any], Any]:
    """A function that reports as many tensors to `sites` and returns a tuple that is ready when that is done."""
    of_process = table()
    slots = hidden(of_process.worst, of_process.tallies)
    apart = is_pipeline()
    writes = tuple(Write([site], of_process) for site in sites) if apart else (Write(sites, of_process),)

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
        """Hands the tensor on."""
        return self.tap(self.look(x))


class _Look(CheckCell):
    """The look; in a compiled graph at a value whose gradient arrives.

    What writes a Parameter in the forward pass of a compiled graph is put in a row by the compiler, which then sums the
    gradients of a value with several users in another order. And the passes of semi-automatic parallel would gather
    what is divided over the ranks to look at it, where now each rank looks at its own part. Until its gradient is there
    the value is kept; under recomputation it is the recomputed one. One that gets no gradient is not looked at.
    """

    def __init__(self, site: Site, slots: Table) -> None:
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

"""What a guarded optimizer asks whether an update may be applied, and the one that asks the C++ library."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.communication import GlobalComm, get_group_size
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.measure.look import make_observer
from asd.operators.measure.tap import kernel_function
from asd.operators.ranks.shards import hold_the_same
from asd.operators.table.gate import Gate
from asd.operators.table.message import WIDTH
from asd.operators.table.site import Site
from asd.operators.table.slots import table

__all__ = ["GateCell", "KernelGate", "number_of_ranks"]

_numbers = itertools.count()


def number_of_ranks() -> int:
    """How many ranks train together; 1 where nothing connects them."""
    return int(get_group_size()) if GlobalComm.INITED else 1


class GateCell(nn.Cell):
    """The part of a guard that asks whether an update may be applied.

    Attributes:
        sites: The checkpoints of the gradients that the optimizer is called with.
        guard_number: Which guard it is.
        width: How many numbers go over the ranks: the verdict, and in data parallel what else there is to tell.
        set_aside: Called in the branch where an update is refused, so that later steps are judged without it.
        gate: Whose it is.
    """

    set_aside: Any

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(auto_prefix=False)
        self.sites = tuple(sites)
        self.look = _look_at_each(sites)
        self.sum_over_ranks = _agreement()
        self.guard_number = next(_numbers)
        self.width = _width()
        self.gate = table().gates.default

    def belong_to(self, gate: Gate) -> None:
        """Says whose it is from now on."""
        self.gate.guards.discard(self)
        self.gate = gate
        gate.guards.add(self)
        table().give_guard(self, gate)


class KernelGate(GateCell):
    """Asks the C++ library; the gradients are its inputs so that all taps have written before it reads."""

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(sites)
        self.ask = kernel_function("asd_gate", self.width)
        self.count = kernel_function("asd_agree")
        self.number = Tensor([self.guard_number], ms.int32)
        self.set_aside = _same  # the library has done so by then
        self.before_asking: Callable[[], None] | None = None

    def __call__(self, gradients):
        """In PyNative, where the optimizer does not compile itself: before a compiled graph `seal` is asked anyway."""
        if self.before_asking is not None:
            self.before_asking()
        return super().__call__(gradients)

    def construct(self, gradients):
        """1 where the update must not be applied, on any rank, else 0."""
        refuses = self.ask(*gradients, *self.look(gradients), self.number)
        return self.count(self.sum_over_ranks(refuses), self.number)[0]


def _agreement() -> Any:
    """Sums numbers over all ranks, or hands them back where there is one rank only."""
    return P.AllReduce() if number_of_ranks() > 1 else _same


def _width() -> int:
    """How many numbers a gate tells; the same on all ranks."""
    return WIDTH if number_of_ranks() > 1 and hold_the_same() else 1


def _same(x: Tensor) -> Tensor:
    return x


def _look_at_each(sites: Sequence[Site]) -> Any:
    """A function that reports each gradient to its site, and returns what is ready when that is done."""
    if not sites:
        return _nothing
    observe, count = make_observer(sites), len(sites)

    def look(gradients):
        return observe(gradients[:count])

    return look


def _nothing(gradients: Any) -> tuple[()]:
    return ()

"""The tap: an identity whose gradient is looked at on its way back.

`make_tap(site)` returns a callable `x -> x`. In the backward pass it writes three numbers of dL/dx into the site's slot
and hands the gradient on, bit for bit. It works in graph mode and PyNative.

It is a Cell with a backward pass of its own made of MindSpore operators, and where operators are divided over ranks the
primitive `InsertGradientOf`. The Cell returns an alias of its input: else a compiled graph would hand it the gradient
of a residual as well when the forward pass of the same layer writes a Parameter (`self.cnt += 1`), and PyNative would
now and then lose a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import Parameter, Tensor, ops
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.measure.statistics import Write
from asd.operators.private.backward import bprop_getters
from asd.operators.private.layout import operators_are_divided
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.table.site import Site
from asd.operators.table.slots import Table, table

__all__ = [
    "alias",
    "divided_tap",
    "hidden",
    "make_tap",
]

Tap = Callable[[Any], Any]


def make_tap(site: Site) -> Tap:
    """An identity that reports the gradient of its input to `site`."""
    slots = table()
    return divided_tap(site, slots) if operators_are_divided() else _Tap(site, slots)


def divided_tap(site: Site, slots: Table, *, of_value: bool = False) -> Tap:
    """The tap as a primitive, for where operators are divided; there is no PyNative.

    There no check may be a call with its own backward pass: MindSpore's passes end with an error at such a call in a
    network that has a `Morph`, as all newer models of mindformers.

    Args:
        site: Where the numbers go.
        slots: The table.
        of_value: Whether the value is looked at, when its gradient arrives, and not the gradient.
    """
    write, parameters = Write([site], slots), hidden(slots.worst, slots.tallies)

    def look(x, gradient):
        worst, tallies = parameters()
        seen = x if of_value else gradient
        return F.depend(gradient, write((seen,), worst, tallies))

    tap = InsertGradientOf(look, lambda gradients: gradients[0])
    tap.takes_value, tap.site = True, site
    return tap


class InsertGradientOf(ops.InsertGradientOf):
    """An identity with a function on its gradient; the name is fixed, for the compiler knows the primitive by it.

    Args:
        in_graph: Compiled by MindSpore: gradient to gradient; with `takes_value` of value and gradient. It must depend
            on all that it calls.
        in_pynative: The same for PyNative, in Python: a tuple with the gradient, to the gradient.
    """

    def __init__(self, in_graph: Callable[..., Any], in_pynative: Callable[[tuple[Tensor, ...]], Tensor]) -> None:
        super().__init__(in_graph)
        # With these attributes two taps in a row make a cycle in the compiled graph; the dependency orders all.
        self.add_prim_attr("side_effect_backprop", False)
        self.add_prim_attr("side_effect_backprop_mem", False)
        self._hook = ops.HookBackward(in_pynative)
        self.takes_value = False

    def __deepcopy__(self, memo: Any) -> InsertGradientOf:
        """Itself: a copy of a network writes where the network does."""
        return self

    def __call__(self, x: Tensor) -> Tensor:
        return self._hook(x)


@bprop_getters.register(InsertGradientOf)
def _bprop_of(primitive: InsertGradientOf) -> Callable[..., Any]:
    look = primitive.f

    # MindSpore's own asks whether the function returned anything: one more branch for the compiler in each tap.
    def bprop(x, out, dout):
        return (look(dout),)

    def bprop_with_value(x, out, dout):
        return (look(x, dout),)

    return bprop_with_value if primitive.takes_value else bprop


class _Tap(CheckCell):
    """The tap where each rank computes whole operators."""

    def __init__(self, site: Site, slots: Table) -> None:
        super().__init__()
        self.site = site
        self.look = _Look(Write([site], slots))
        self.slots = hidden(slots.worst, slots.tallies)

    def construct(self, x):
        if 0 in x.shape:  # nothing will be computed, so there is nothing to judge
            return x
        worst, tallies = self.slots()
        return self.look(x, worst, tallies)


class _Look(CheckCell):
    """Identity of its first input; the backward pass may write only the Parameters it gets as arguments."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write = write

    def construct(self, x, worst, tallies):
        return alias(x)

    def bprop(self, x, worst, tallies, out, dout):
        gradient = F.depend(dout, self.write((dout,), worst, tallies))
        return gradient, F.zeros_like(worst), F.zeros_like(tallies)


def hidden(*parameters: Parameter) -> Callable[[], tuple[Parameter, ...]]:
    """Parameters behind a function: as attributes of a Cell they would be among the network's own."""

    def get():
        return parameters

    return get


def alias(x: Any) -> Any:
    """Another tensor with the numbers of `x`, in the same memory.

    What a Cell with a backward pass of its own must return in PyNative, where it would return its input: MindSpore 2.9
    then writes into the input itself, and operators that were called before, but wait in a queue, lose their gradient.
    """
    return F.stop_gradient(x)

"""The tap: an identity whose gradient is looked at on its way back.

`make_tap(site)` returns a callable `x -> x`. In the backward pass it writes three numbers of dL/dx into the site's slot
and hands the gradient on, bit for bit. It works in graph mode and PyNative, and there are two kinds of it.

`InsertGradientOf` below has two faces. The graph compiler sees the primitive of that name, whose function calls the C++
kernel; that call has no side effect a compiler could know of, so the gradient is made to depend on its output. PyNative
calls `__call__`, which hooks a Python function that hands the gradient's memory to the same kernel.

`_OperatorTap` is a Cell with a backward pass of its own made of MindSpore operators, for the other devices. It returns
an alias of its input: else a compiled graph would hand it the gradient of a residual as well when the forward pass of
the same layer writes a Parameter (`self.cnt += 1`), and PyNative would now and then lose a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.kernel import library as kernel
from asd.operators.private.backward import bprop_getters
from asd.operators.private.layout import is_pipeline, operators_are_divided
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.table.operator_table import OperatorTable
from asd.operators.table.site import Site
from asd.operators.table.slots import by_backend
from asd.tiers import FEATURES

__all__ = [
    "Write",
    "alias",
    "divided_tap",
    "divides_calls",
    "hidden",
    "kernel_function",
    "make_tap",
    "observe_tensor",
    "statistics_by_operators",
]

Tap = Callable[[Any], Any]
_ZERO, _ONE, _SMALLEST = (Tensor(value, ms.float32) for value in (0.0, 1.0, 1.1754944e-38))


def make_tap(site: Site) -> Tap:
    """An identity that reports the gradient of its input to `site`."""
    return by_backend(kernel=lambda _: _kernel_tap(site), operators=lambda each: _operator_tap(site, each))


def _operator_tap(site: Site, slots: OperatorTable) -> Tap:
    return divided_tap(site, slots) if divides_calls() else _OperatorTap(site, slots)


def divides_calls() -> bool:
    """Whether MindSpore divides operators, but not layers: then no check may be a call with its own backward pass.

    Its passes end with an error at such a call in a network that has a `Morph`, as all newer models of mindformers.
    """
    return operators_are_divided() and not is_pipeline()


def divided_tap(site: Site, slots: OperatorTable, *, of_value: bool = False) -> Tap:
    """The tap made of MindSpore operators, as a primitive; there is no PyNative where operators are divided.

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


def kernel_function(name: str, size: int = 1) -> ops.Custom:
    """The kernel's function `name` as an operator that returns float32[size]."""
    return ops.Custom(
        f"{kernel.library_path()}:{name}",
        out_shape=(size,),  # not functions, which the compiler would call whenever it infers types anew
        out_dtype=ms.float32,
        func_type="aot",
    )


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


def _kernel_tap(site: Site) -> Tap:
    observe = kernel_function("asd_observe")
    number = site.slot
    slot = Tensor([number], ms.int32)

    def look_in_graph(gradient):
        return F.depend(gradient, observe(gradient, slot))

    def look_in_pynative(gradients: tuple[Tensor, ...]) -> Tensor:
        observe_tensor(number, gradients[0])
        return gradients[0]

    tap = InsertGradientOf(look_in_graph, look_in_pynative)
    tap.site = site
    return tap


def observe_tensor(slot: int, x: Tensor) -> None:
    """Hands the memory of a PyNative tensor to the kernel."""
    readable = x.astype(ms.float32) if x.dtype == ms.bfloat16 else x  # NumPy has no bfloat16
    kernel.observe(slot, np.ascontiguousarray(readable.asnumpy()))


def statistics_by_operators(x: Tensor) -> tuple[Tensor, Tensor]:
    """What the kernel measures, by MindSpore operators.

    Args:
        x: Any shape, any floating-point type.

    Returns:
        float32 of shape (3,): largest finite magnitude, L2 norm and mean magnitude; norm and mean are `inf` or `nan`
        when an element is. And float32 of shape (), how many elements are not finite.
    """
    largest, unit, squares, mean, bad = _reductions(x)
    return P.Stack()((largest, unit * P.Sqrt()(squares), unit * mean)), bad


def _reductions(x):
    """All that takes a whole tensor: five numbers of shape ().

    The squares are summed, and the mean taken, of x divided by the second number, so that none overflows or vanishes.
    Scalars stand for tensors of them, which the compiler would make constants, as large as x.
    """
    magnitude = P.Abs()(P.Cast()(x, ms.float32))
    finite = P.IsFinite()(magnitude)
    largest = P.ReduceMax()(P.Select()(finite, magnitude, _ZERO))  # it drops NaN on CPU: only finite ones get there
    # At least the smallest normal float32: a division may be made as a product with the reciprocal, which must be
    # finite.
    unit = P.Maximum()(largest, _SMALLEST)
    scaled = magnitude / unit
    bad = P.ReduceSum()(P.Select()(finite, _ZERO, _ONE))
    return largest, unit, P.ReduceSum()(scaled * scaled), P.ReduceMean()(scaled), bad


def _reductions_in_pipeline(x):
    """The same of operators that the passes of a pipeline know: they refuse a selection from a scalar."""
    g = P.Cast()(x, ms.float32)
    finite = P.IsFinite()(g)
    zeros = P.ZerosLike()(g)
    largest = P.ReduceMax()(P.Abs()(P.Select()(finite, g, zeros)))
    unit = P.Maximum()(largest, _SMALLEST)
    scaled = g / unit
    bad = P.ReduceSum()(1.0 - P.Cast()(finite, ms.float32))
    return largest, unit, P.ReduceSum()(scaled * scaled), P.ReduceMean()(P.Abs()(scaled)), bad


class _OperatorTap(CheckCell):
    """The tap made of MindSpore operators."""

    def __init__(self, site: Site, slots: OperatorTable) -> None:
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
        self.in_pipeline = is_pipeline()

    def construct(self, x, worst, tallies):
        return alias(x, in_pipeline=self.in_pipeline)

    def bprop(self, x, worst, tallies, out, dout):
        gradient = F.depend(dout, self.write((dout,), worst, tallies))
        return gradient, F.zeros_like(worst), F.zeros_like(tallies)


class Write(CheckCell):
    """Writes the numbers of some tensors into their slots; returns a tensor that is ready when that is done.

    What takes a whole tensor is one operator for each; what follows is one for all of them.

    Args:
        sites: As many as there will be tensors.
        slots: The table.
    """

    def __init__(self, sites: Sequence[Site], slots: OperatorTable) -> None:
        super().__init__()
        numbers, capacity = np.array([site.slot for site in sites], np.int32), slots.CAPACITY
        features = [numbers + i * capacity for i in range(len(FEATURES))]
        counts = [numbers, numbers + capacity]
        self.features_at, self.counts_at = Tensor(np.concatenate(features)), Tensor(np.concatenate(counts))
        self.each_at = tuple(Tensor(at) for at in (*features, *counts))
        self.ones, self.alone = Tensor(np.ones(len(sites), np.float32)), len(sites) == 1
        # When all is compiled a stage of a pipeline drops tensors of the others, from what takes several together too.
        self.apart = is_pipeline()
        # Scatter operators, for they are one kernel each: several calls of one layer in a graph run in any order.
        self.keep_worst, self.add = P.ScatterMax(), P.ScatterAdd()

    def construct(self, tensors, worst, tallies):
        """After the last of its writes."""
        if self.apart:
            return self.one_by_one(tensors[0], worst, tallies)
        if self.alone:
            features, bad = statistics_by_operators(tensors[0])
            calls = P.Stack()((_ONE, bad))
        else:
            features, bads = _together(tensors)
            calls = P.Concat()((self.ones, bads))
        done = self.keep_worst(worst, self.features_at, features)
        return F.depend(self.add(tallies, self.counts_at, calls), done)

    def one_by_one(self, x, worst, tallies):
        """The same of one tensor, each number by itself."""
        largest, unit, squares, mean, bad = _reductions_in_pipeline(x)
        in_vector, at = P.ExpandDims(), self.each_at
        done = self.keep_worst(worst, at[0], in_vector(largest, 0))
        done = F.depend(self.keep_worst(worst, at[1], in_vector(unit * P.Sqrt()(squares), 0)), done)
        done = F.depend(self.keep_worst(worst, at[2], in_vector(unit * mean, 0)), done)
        done = F.depend(self.add(tallies, at[3], self.ones), done)
        return F.depend(self.add(tallies, at[4], in_vector(bad, 0)), done)


def _together(tensors):
    """The same as `statistics_by_operators` of each, with all largest magnitudes first, then all norms and means."""
    largest, units, squares, means, bads = (), (), (), (), ()
    for x in tensors:
        one, unit, square, mean, bad = _reductions(x)
        largest, units, squares = (*largest, one), (*units, unit), (*squares, square)  # type: ignore[assignment]
        means, bads = (*means, mean), (*bads, bad)  # type: ignore[assignment]
    stack = P.Stack()
    of_each = stack(units)
    return P.Concat()((stack(largest), of_each * P.Sqrt()(stack(squares)), of_each * stack(means))), stack(bads)


def hidden(*parameters: Parameter) -> Callable[[], tuple[Parameter, ...]]:
    """Parameters behind a function: as attributes of a Cell they would be among the network's own."""

    def get():
        return parameters

    return get


def alias(x: Any, *, in_pipeline: bool = False) -> Any:
    """The same numbers in the same memory as another tensor.

    What a Cell with a backward pass of its own must return in PyNative, where it would return its input: MindSpore 2.9
    then writes into the input itself, and operators that were called before, but wait in a queue, lose their gradient.

    Args:
        x: The tensor.
        in_pipeline: Whether layers are divided into stages, which compiled graphs alone know. What is sent to the next
            stage must come out of an operator that MindSpore divides: a cast to its own type, which costs nothing.
    """
    return F.cast(x, F.dtype(x)) if in_pipeline else F.stop_gradient(x)

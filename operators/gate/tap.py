"""The tap: an identity whose gradient is measured on its way back, and handed on bit for bit."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812
from mindspore.ops.primitive import constexpr

from asd.operators.gate.gate import Gate
from asd.operators.gate.site import Site
from asd.operators.gate.slots import table
from asd.operators.gate.statistics import Statistics, statistics
from asd.operators.private.boundary import shielded
from asd.operators.private.layout import is_pipeline, local, operators_are_divided
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.private.names import find
from asd.rules.reading import GRADIENT

Tap = Callable[[Any], Any]
_living: weakref.WeakValueDictionary[int, _Tap] = weakref.WeakValueDictionary()
_numbers, _calls = itertools.count(), itertools.count(1)
_EACH = ops.HyperMap()
_SKIPPED = "the program skipped a step whose gradients were not finite, as loss scalers do: they are not judged"


def make_tap(site: Site) -> Tap:
    """Returns an identity that reports the gradient of its input to `site`."""
    tap = _Tap(site)
    _living[tap.number] = tap
    return tap


def living_taps() -> list[Any]:
    """Returns all taps of this process; a graph compiled while a tap's `enable_check` is False lacks that tap."""
    return list(_living.values())


@constexpr
def _note_call(number: int) -> bool:
    """Notes the order of calls; Python runs it while the compiler follows a network from its input on."""
    tap = _living.get(number)
    if tap is not None and tap.site.called == 0:
        tap.site.called = next(_calls)
    return True


class _Tap(CheckCell):
    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site, self.hook, self.enable_check, self.number = site, _hook_on(site), True, next(_numbers)
        write, self.slots = _Write([site]), hidden(table().worst)
        self.is_primitive = operators_are_divided() or ms.get_context("mode") == ms.GRAPH_MODE
        self.look = _primitive(write, self.slots) if self.is_primitive else _Look(write)

    def __deepcopy__(self, memo: Any) -> _Tap:
        """Returns itself: a copy of a network is checked where the network is."""
        return self

    def __call__(self, x):
        """Attaches a hook in PyNative; a graph that calls it compiles `construct`."""
        return super().__call__(x) if ms.get_context("mode") == ms.GRAPH_MODE else self.hook(x)

    def construct(self, x):
        if not (self.enable_check and _note_call(self.number)) or 0 in x.shape:  # nothing is computed or to be judged
            return x
        if self.is_primitive:
            return self.look(x)
        (worst,) = self.slots()
        return self.look(x, worst)


class _Look(CheckCell):
    """Identity of its first input; the backward pass may write only the Parameter it gets as an argument."""

    def __init__(self, write: _Write) -> None:
        super().__init__()
        self.write = write

    def construct(self, x, worst):
        # Else it gets the gradient of a residual too, where the forward pass writes a Parameter (`self.cnt += 1`).
        return alias(x)

    def bprop(self, x, worst, out, dout):
        # A second derivative goes through this too: what only measures has none.
        return F.depend(dout, F.stop_gradient(self.write((F.stop_gradient(dout),), worst))), F.zeros_like(worst)


class _Write(CheckCell):
    """Writes the statistics of tensors into the slots of as many sites; returns a value that is ready then."""

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__()
        numbers = np.array([site.slot for site in sites], np.int32)
        self.at, self.count = Tensor(numbers), len(numbers)
        self.each_at = tuple(Tensor(numbers[i : i + 1]) for i in range(len(numbers)))
        # When all is compiled a stage of a pipeline drops tensors of the others, from what takes several together too.
        self.apart = is_pipeline()
        self.measure = Statistics()
        for site in sites:
            site.measured_by(self.measure)
        # A scatter operator, for it is one kernel: several calls of one layer in a graph run in any order.
        self.keep_worst, self.select, self.equal, self.expand = P.ScatterMax(), P.Select(), P.Equal(), P.ExpandDims()
        self.is_finite = P.IsFinite()
        self.infinite, self.one_infinite = (Tensor(np.full(n, np.inf, np.float32)) for n in (len(numbers), 1))

    def construct(self, tensors, worst):
        """Writes the statistics at once, or tensor by tensor."""
        if not (self.apart or self.count == 1):
            return self.keep_worst(worst, self.at, self.judged(self.measure(tensors), self.infinite))
        if self.count == 1:
            return self.write_one(worst, tensors[0], self.each_at[0])
        # A loop takes the square of their number to compile.
        return _EACH(F.partial(self.write_one, worst), tensors, self.each_at)

    def write_one(self, worst, x, at):
        value = self.expand(self.measure.finish(self.measure.one(x)), 0)
        return self.keep_worst(worst, at, self.judged(value, self.one_infinite))

    def judged(self, values, infinite):
        if self.measure.leaves_overflows:
            return self.select(self.is_finite(values), values, -infinite)  # which changes no slot
        return self.select(self.equal(values, values), values, infinite)  # the larger of two numbers may drop NaN


def make_observer(sites: Sequence[Site]) -> Callable[[Any], Any]:
    """Returns a function for compiled graphs: it reports a tensor to each site and returns a value to wait for."""
    slots, write = hidden(table().worst), _Write(sites)

    def report(tensors):
        (worst,) = slots()
        return write(tensors, worst)

    return report


def _primitive(write: _Write, slots: Callable[[], tuple[Parameter, ...]]) -> InsertGradientOf:
    """Returns the tap of graph mode."""

    # No call with its own backward pass: at such a call MindSpore's passes end with an error in a divided network that
    # has a `Morph`, as all newer models of mindformers.
    def look(gradient):
        (worst,) = slots()
        # A second derivative goes through this too: what only measures has none.
        return F.depend(gradient, F.stop_gradient(write((F.stop_gradient(gradient),), worst)))

    return InsertGradientOf(look)


class InsertGradientOf(ops.InsertGradientOf):
    """An identity with a function on its gradient; the name is fixed, for the compiler knows the primitive by it."""

    def __init__(self, in_graph: Callable[..., Any]) -> None:
        super().__init__(in_graph)
        find("bprop_getters").register(InsertGradientOf)(_bprop_of)
        # With these attributes two taps in a row make a cycle in the compiled graph; the dependency orders all.
        self.add_prim_attr("side_effect_backprop", False)
        self.add_prim_attr("side_effect_backprop_mem", False)
        # What lies before it may be computed again in the backward pass; behind an identity that is not, it is kept.
        self.add_prim_attr("recompute", True)

    def __deepcopy__(self, memo: Any) -> InsertGradientOf:
        """Returns itself: a copy of a network writes where the network does."""
        return self


def _bprop_of(primitive: InsertGradientOf) -> Callable[..., Any]:
    look = primitive.f

    # MindSpore's own asks whether the function returned anything: one more branch for the compiler in each tap.
    def bprop(x, out, dout):
        return (look(dout),)

    return bprop


def _hook_on(site: Site) -> ops.HookBackward:
    """Returns an identity of PyNative that measures its gradient; MindSpore keeps it, so it must not keep the site."""
    known = weakref.ref(site)

    def see(gradients: Any) -> None:
        living = known()
        if living is not None:
            note([living], gradients)

    return ops.HookBackward(see)


@shielded
def note(sites: Sequence[Site], gradients: Sequence[Any], known: tuple[int, float] | None = None) -> Tensor | None:
    """Measures gradients that Python has for `sites` of one monitor, those of a network's last parameters first.

    Returns what it measured, in that order; None where there is nothing.

    Args:
        sites: The sites.
        gradients: As many tensors.
        known: A slot, and a number to be measured for it.
    """
    both = list(zip(sites, gradients, strict=False))[::-1]
    pairs = [(site.slot, each) for site, each in both if each is not None and local(each).size > 0]
    if known is not None:
        pairs.append((known[0], Tensor([known[1]], ms.float32)))
    if not pairs:
        return None
    slots, tensors = zip(*pairs, strict=True)
    values = statistics(tensors, largest=sites[0].largest)
    table().note(slots, values)
    return values


@shielded
def drop_skipped(gate: Gate | None, gradients: Sequence[Any]) -> bool:
    """Drops what passes without an update left, if that is not finite and `gradients` are; returns whether it did."""
    tensors = [each for each in gradients if each is not None and local(each).size > 0]
    if gate is None or not tensors or not np.isfinite(statistics(tensors).asnumpy()).all():
        return False
    if dropped := table().drop_overflow([site for site in gate.sites if site.kind == GRADIENT]):
        gate.dropped = True
        logging.getLogger("asd").info(_SKIPPED)
    return dropped


def hidden(*parameters: Parameter) -> Callable[[], tuple[Parameter, ...]]:
    """Parameters behind a function: as attributes of a Cell they would be among the network's own."""

    def get():
        return parameters

    return get


def alias(x: Any) -> Any:
    """Returns another tensor with the numbers of `x`, in the same memory."""
    return F.stop_gradient(x)

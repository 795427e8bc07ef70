"""The guard: an optimizer that does not apply an update while a checked value breaks its limit."""

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: N812

from asd.diagnosis.flow import PART
from asd.errors import ConfigError, UnsupportedError
from asd.operators.gate.gate_cell import GateCell, number_of_ranks
from asd.operators.gate.slots import table
from asd.operators.private.boundary import wait_for_pynative
from asd.operators.private.class_swap import put_on
from asd.operators.ranks.shards import shares_gradients
from asd.rules.reading import AVERAGED, WEIGHT_GRADIENT


def guard(optimizer: nn.Cell, *, gradients: bool = False, lower: bool = False, parts: bool = False) -> nn.Cell:
    """Makes `optimizer` refuse an update while a checked value breaks its limit or is not finite.

    The limits are those that a `StepMonitor` writes after each step; until one is attached nothing is refused. In data
    parallel all ranks refuse together: a few numbers go through an all-reduce. The optimizer is changed in
    place, and keeps its class name, attributes and parameters. Do it before the first step, for a compiled graph does
    not change.

    Args:
        optimizer: Any optimizer that is called with a tuple of gradients.
        gradients: Whether the gradients it is called with are checked too, each under the name of its Parameter; in
            data parallel, where they are means over the ranks, with `averaged.` before it.
        lower: Whether there will be lower limits too.
        parts: Whether each rank's optimizer has another part of each weight; their names have `part.` before them.

    Returns:
        `optimizer` itself.

    Raises:
        ConfigError: `optimizer` is not a Cell.
        UnsupportedError: Its `construct` was set on it alone, where nothing can be put around it.
    """
    if not isinstance(optimizer, nn.Cell):
        valid = "it must be an optimizer of mindspore.nn, mint or mindformers"
        raise ConfigError("optimizer", type(optimizer).__name__, valid)
    if is_guarded(optimizer):
        return optimizer
    if "construct" in vars(optimizer):
        raise UnsupportedError(
            f"the construct of {type(optimizer).__name__} was set on this one optimizer, as by optimizer.construct = "
            "jit(...), so nothing can refuse its updates; put jit on the method of its class"
        )
    slots = table()
    prefix, kind = (PART if parts else "averaged.", AVERAGED) if are_averaged() else ("", WEIGHT_GRADIENT)
    weights = getattr(optimizer, "parameters", ()) if gradients else ()
    sites = [slots.new_site(prefix + weight.name, kind) for weight in weights]
    for site in sites:
        site.claimed = True
    gate = GateCell(sites, lower=lower)
    gate.belong_to(slots.gates.default)
    optimizer.asd_gate, optimizer.asd_set_aside, optimizer.asd_is_judged = gate, gate.set_aside, False
    optimizer.asd_in_view = _make_in_view(optimizer)
    put_on(optimizer, _guarded(type(optimizer)))
    return optimizer


def _guarded(base: type) -> type:
    class Guarded(base):
        def __call__(self, gradients, *args, **kwargs):
            if ms.get_context("mode") == ms.GRAPH_MODE:
                return super().__call__(gradients, *args, **kwargs)
            wait_for_pynative()
            if self.asd_gate.refuses(gradients):
                return Tensor(False)
            # Some optimizers compile their `construct`: without a second gate then.
            self.asd_is_judged = True
            try:
                return super().__call__(gradients, *args, **kwargs)
            finally:
                self.asd_is_judged = False

        def construct(self, gradients, *args, **kwargs):
            if self.asd_is_judged:
                return super().construct(gradients, *args, **kwargs)
            vote, fits, differs = self.asd_gate(gradients)
            vote = self.asd_in_view(vote)
            # The optimizer runs in one branch only; all return a tensor, for a graph has one type of result.
            if fits:
                if differs:
                    result = self.asd_set_aside(vote)
                else:
                    result = F.depend(vote, super().construct(gradients, *args, **kwargs))
            else:
                result = self.asd_set_aside(vote)
            return result

    return Guarded


def _make_in_view(optimizer: nn.Cell) -> Any:
    """Returns a function that names the Parameters of `optimizer` outside of the branch that updates them."""
    # A compiled graph takes over no `set_data` or `load_param_into_net` of a Parameter that only a branch of it uses.
    parameters = tuple(optimizer.get_parameters())

    def in_view(refused):
        return F.depend(refused, parameters) if parameters else refused

    return in_view


def is_guarded(optimizer: nn.Cell) -> bool:
    """Returns whether `guard` was called on `optimizer`."""
    return getattr(optimizer, "asd_gate", None) is not None


def are_averaged() -> bool:
    """Returns whether optimizers are called with gradients that are averaged over a replica group."""
    return number_of_ranks() > 1 and shares_gradients()

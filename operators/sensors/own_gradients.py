"""Gradients of parameters while they are still this rank's own: before a reducer takes their mean over the ranks."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import mindspore as ms
from mindspore import Parameter, nn
from mindspore.ops import functional as F  # noqa: N812

from asd.errors import ConfigError
from asd.operators.gate.gate_cell import GateCell
from asd.operators.gate.site import Site
from asd.operators.gate.slots import table
from asd.operators.gate.tap import make_observer, note
from asd.operators.private.boundary import shielded
from asd.operators.private.class_swap import put_on
from asd.operators.sensors.links import Links
from asd.operators.sensors.optimizers import members_of
from asd.rules.reading import WEIGHT_GRADIENT


def reducer_of(net: nn.Cell | None, optimizer: nn.Cell, given: nn.Cell | None = None) -> nn.Cell | None:
    """Returns the cell that averages the gradients for `optimizer` over the ranks.

    Args:
        net: The training cell, searched outside the optimizer for a reducer of as many gradients. Where each rank's
            optimizer has only some of the weights, the reducer may be that of all.
        optimizer: The optimizer.
        given: The reducer, where it is known.

    Returns:
        The reducer; None where `net` has none.
    """
    count = len(getattr(optimizer, "parameters", ()))
    trained = len(weights_in(net, optimizer)) if net is not None else count
    if given is not None:
        if not (_reduces(given, count) or _reduces(given, trained)):
            valid = f"it must be a DistributedGradReducer of the optimizer's {count} gradients"
            raise ConfigError("reducer", type(given).__name__, valid)
        return given
    inside = {id(cell) for _, cell in optimizer.cells_and_names()}
    found = [cell for _, cell in (net.cells_and_names() if net is not None else ()) if id(cell) not in inside]
    return next((cell for size in (count, trained) for cell in found if _reduces(cell, size)), None)


def weights_of(reducer: nn.Cell, optimizer: nn.Cell, net: nn.Cell | None) -> Sequence[Parameter]:
    """Returns the weights whose gradients a reducer from `reducer_of` is called with."""
    own: Sequence[Parameter] = getattr(optimizer, "parameters", ())
    return own if net is None or _reduces(reducer, len(own)) else weights_in(net, optimizer)


def weights_in(net: nn.Cell, optimizer: nn.Cell | None) -> list[Parameter]:
    """Returns the weights of a network or a training cell, without the state of its optimizer."""
    state = {id(each) for each in optimizer.get_parameters()} if optimizer is not None else set()
    state -= {id(each) for each in getattr(optimizer, "parameters", ())}
    return [each for each in net.trainable_params() if id(each) not in state]


def alike_on_ranks(net: nn.Cell | None, optimizer: nn.Cell | None) -> list[Parameter]:
    """Returns what a replica group shares bit for bit: weights, and the state of an optimizer that has them all."""
    own = list(getattr(optimizer, "parameters", ()))
    if net is None:
        return own
    weights = weights_in(net, optimizer)
    # With `enable_parallel_optimizer` an optimizer holds all state, and updates a part of it.
    is_parted = optimizer is not None and any(getattr(each, "use_parallel", False) for each in members_of(optimizer))
    return weights if is_parted or (optimizer is not None and len(own) != len(weights)) else net.trainable_params()


def _reduces(cell: nn.Cell, gradients: int) -> bool:
    return isinstance(cell, nn.DistributedGradReducer) and len(cell.allreduce_filter) == gradients


def look_before_reduction(reducer: nn.Cell, weights: Sequence[Parameter], gates: Sequence[GateCell]) -> list[Site]:
    """Looks at the gradient of every parameter before its reducer, and has `gates` compare what comes out of it."""
    if (present := getattr(reducer, "asd_own_gradients", None)) is not None:
        return list(present.sites)
    base = type(reducer)

    class Looked(base):  # type: ignore[misc, valid-type]
        def construct(self, gradients, *args, **kwargs):
            gradients = self.asd_own_gradients(gradients)
            reduced = super().construct(gradients, *args, **kwargs)
            return reduced if self.asd_links is None else self.asd_links(gradients, reduced)

    sites = [table().new_site(weight.name, WEIGHT_GRADIENT) for weight in weights]
    for site in sites:
        site.claimed = True
    own = reducer.asd_own_gradients = OwnGradients(sites)
    # What a construct of its own makes of gradients need not be their sum.
    is_sum = base.construct is nn.DistributedGradReducer.construct and any(reducer.allreduce_filter)
    reducer.asd_links = Links(reducer, own, weights, gates[0].state) if gates and is_sum else None
    for gate in gates if is_sum else ():
        gate.state.link = gates[0].state.link
        gate.compile_decision()
    put_on(reducer, Looked)
    return sites


def look_in_backward_pass(weights: Iterable[Parameter], sites: Iterable[Site]) -> tuple[list[Site], list[Any]]:
    """Looks at the gradient of every parameter when PyNative's backward pass has it, of each micro-batch alone.

    There no clipping has made a fault small, and no sum over ranks has hidden its rank.

    Args:
        weights: Parameters of the network.
        sites: Their sites, where there are any; else they are made, each called like its parameter.

    Returns:
        The sites, and the hooks, which can be removed.
    """
    known = {site.name: site for site in sites}
    found, hooks = [], []
    for weight in weights:
        site = known.get(weight.name) or table().new_site(weight.name, WEIGHT_GRADIENT)
        site.claimed = True
        hooks.append(weight.register_hook(partial(_hook, site)))
        found.append(site)
    return found, hooks


@shielded
def _hook(site: Site, gradient: Any) -> None:
    owner = site.owner() if site.owner is not None else None
    if owner is not None and owner.active:
        note([site], [gradient])


class OwnGradients(nn.Cell):
    """The gradients as they are, after each was looked at."""

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(auto_prefix=False)
        self.sites = tuple(sites)
        self.norms: Any = None  # in PyNative, of the last call, from the last gradient on
        self.is_linked = self.is_noted = False  # by `Links`; by Python, so not by the reducer's code, which is compiled
        self.observe = make_observer(self.sites)

    def __call__(self, gradients):
        """Measures at once in PyNative; a graph that calls it compiles `construct`."""
        if ms.get_context("mode") == ms.GRAPH_MODE:
            return super().__call__(gradients)
        self.norms, self.is_noted = note(self.sites, gradients), self.is_linked
        return gradients

    def construct(self, gradients):
        """Hands the gradients on."""
        if self.is_noted:
            return gradients
        return F.depend(gradients, self.observe(gradients))

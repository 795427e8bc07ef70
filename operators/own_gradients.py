"""Gradients of parameters while they are still this rank's own: before a reducer takes their mean over the ranks."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any

from mindspore import nn
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.compiled_super import mend_super
from asd.operators.look import make_observer
from asd.operators.site import Site
from asd.operators.slots import table

__all__ = ["OwnGradients", "look_before_reduction", "own_gradients", "reducer_of"]


def reducer_of(net: nn.Cell | None, optimizer: nn.Cell) -> nn.Cell | None:
    """The reducer of the gradients that `optimizer` is called with.

    It is the one in `net` of as many gradients as `optimizer` has parameters; where no cell of it is one, as in a loop
    of one's own around `value_and_grad`, the only one of that kind in this process. None where there is none.
    """
    count = len(getattr(optimizer, "parameters", ()))
    cells = [cell for _, cell in net.cells_and_names()] if net is not None else []
    found = _reducers(cells, count)
    if found:
        return found[0]
    living = _reducers(gc.get_objects(), count)
    return living[0] if len(living) == 1 else None


def _reducers(things: Iterable[object], gradients: int) -> list[nn.Cell]:
    # By type, for `isinstance` asks strange objects what they are.
    reducers: list[Any] = [each for each in things if issubclass(type(each), nn.DistributedGradReducer)]
    return [each for each in reducers if len(each.allreduce_filter) == gradients]


def look_before_reduction(net: nn.Cell | None, optimizer: nn.Cell) -> list[Site]:
    """Looks at the gradient of every parameter before its reducer.

    Args:
        net: The training cell, which is not compiled yet; it is searched for a reducer, see `reducer_of`.
        optimizer: The optimizer, whose parameters the gradients belong to.

    Returns:
        The checkpoints, each called like its parameter; none where no reducer was found.
    """
    reducer = reducer_of(net, optimizer)
    if reducer is None:
        return []
    look = own_gradients(reducer)
    weights = getattr(optimizer, "parameters", ())
    if not look.sites_of("W"):
        look.add([(i, table().new_site(weight.name, "W")) for i, weight in enumerate(weights)])
    return look.sites_of("W")


class OwnGradients(nn.Cell):
    """The gradients as they are, after some of them were looked at."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.sites: tuple[Site, ...] = ()
        self.places: tuple[int, ...] = ()
        self.observers: tuple[object, ...] = ()

    def sites_of(self, kind: str) -> list[Site]:
        """The checkpoints of one kind."""
        return [site for site in self.sites if site.kind == kind]

    def add(self, chosen: Sequence[tuple[int, Site]]) -> None:
        """Looks at more of them: each a place among the gradients, and its checkpoint."""
        for place, site in chosen:
            site.claimed = True
            self.sites, self.places = (*self.sites, site), (*self.places, place)
            self.observers = (*self.observers, make_observer(site))

    def construct(self, gradients):
        """The same gradients."""
        seen = ()
        for i in range(len(self.places)):
            seen = (*seen, self.observers[i](gradients[self.places[i]]))  # type: ignore[assignment, operator]
        return F.depend(gradients, seen)


def own_gradients(holder: nn.Cell) -> OwnGradients:
    """What looks at the gradients that a reducer or an optimizer is called with; put there at the first call."""
    present = getattr(holder, "asd_own_gradients", None)
    if present is not None:
        return present  # type: ignore[no-any-return]
    mend_super()
    base = type(holder)

    class Looked(base):  # type: ignore[misc, valid-type]
        def construct(self, gradients, *args):
            return super().construct(self.asd_own_gradients(gradients), *args)

    Looked.__name__, Looked.__qualname__, Looked.__module__ = base.__name__, base.__qualname__, base.__module__
    look = holder.asd_own_gradients = OwnGradients()
    holder.__class__ = Looked
    return look

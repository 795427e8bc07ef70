"""Several monitors in one process, as for a GAN: the owner and the name of each site."""

from collections.abc import Iterator, Sequence

from mindspore import Parameter, nn

from asd.operators.gate.gate import Gate
from asd.operators.gate.site import Site
from asd.operators.gate.slots import table


def left_to_others(sites: Sequence[Site], net: nn.Cell | None, optimizer: nn.Cell | None, gate: Gate) -> set[Site]:
    """Returns the `sites` that belong to a monitor with a different gate; `gate` trains `net`."""
    others = table().gates.others(gate)
    gate.optimizers.clear()
    if optimizer is not None:
        gate.optimizers.add(optimizer)
    for other in others:
        if optimizer in other.optimizers:
            other.active = False
    owned = [site for site in sites if site.watched_by not in (None, gate) and site.watched_by.optimizers]
    layers = _layers(net) if owned and net is not None else {}
    return {site for site in owned if not gate.trains(layers.get(site, ()))}


def _layers(net: nn.Cell) -> dict[Site, list[Parameter]]:
    """Returns the weights of the layer of each site in `net`."""
    found: dict[Site, list[Parameter]] = {}
    for _, cell in net.cells_and_names():  # a layer comes before its parts, of which its checks are one
        weights = None
        for held in [*vars(cell).values(), *cell.cells()]:
            for site in _sites_of(held):
                weights = cell.trainable_params() if weights is None else weights
                found.setdefault(site, weights)
    return found


def _sites_of(held: object) -> Iterator[Site]:
    for each in (held, *(getattr(held, name, None) for name in ("look", "tap", "check_op"))):
        site, sites = getattr(each, "site", None), getattr(each, "sites", None)
        yield from [site] if isinstance(site, Site) else []
        yield from (one for one in sites if isinstance(one, Site)) if isinstance(sites, (list, tuple)) else []


def name_apart(gate: Gate, others: Sequence[Gate], net: nn.Cell | None) -> None:
    """Prefixes names that another monitor has by the class of `net`, and labels the files of `gate`."""
    name = type(_inside(net) or next(iter(gate.optimizers), None)).__name__
    labels = {other.label for other in others}
    labels_of_name = (f"{name}{number}" if number else name for number in (0, *range(2, len(others) + 3)))
    label = next(each for each in labels_of_name if each not in labels)
    if gate.label is None:
        gate.label = label if others else ""
    taken = {site.name for other in others for site in other.sites}
    for site in gate.sites:
        if site.name in taken:
            site.name = f"{gate.label or label}.{site.name}"


def _inside(net: nn.Cell | None) -> nn.Cell | None:
    """Returns the network inside the wrappers that trainings put around it."""
    while net is not None:
        inner = getattr(net, "network", None) or getattr(net, "_backbone", None)
        if not isinstance(inner, nn.Cell):
            break
        net = inner
    return net

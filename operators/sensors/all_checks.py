"""Installs every check of a training: on the network, before its reducer, and around the optimizer."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import mindspore as ms
from mindspore import Parameter, nn

from asd.config import Config
from asd.errors import UnsupportedError
from asd.judge.detectors import statistic_of
from asd.judge.protections import Off
from asd.operators.gate.gate_cell import GateCell
from asd.operators.gate.guard import are_averaged, guard, is_guarded
from asd.operators.gate.site import Site
from asd.operators.gate.step_record import Part
from asd.operators.private.layout import operators_are_divided, why_layers_are_unchecked
from asd.operators.sensors.fallback import compile_without_what_fails
from asd.operators.sensors.install import install, sites_of, switch_off
from asd.operators.sensors.optimizers import members_of
from asd.operators.sensors.own_gradients import (
    look_before_reduction,
    look_in_backward_pass,
    reducer_of,
    weights_in,
    weights_of,
)
from asd.operators.sensors.sharing import left_to_others, name_apart
from asd.rules.reading import SCORES

_LOG = logging.getLogger("asd.install")
_SPARSE = "gradients of weights are not checked, as some are sparse: pass sparse=False to nn.EmbeddingLookup"


class Checks(Part):
    """Checks of one `StepMonitor`."""

    def __init__(self, config: Config, include: str | Iterable[str], exclude: str | Iterable[str]) -> None:
        self._config, self._include, self._exclude = config, include, exclude
        self._judges_history = config.rule == "adaptive"
        self._hooks: list[Any] = []

    def put_on(self, net: nn.Cell | None, optimizer: nn.Cell | None, *, also: bool = False) -> None:
        """Puts checks on `net`, which is not compiled yet.

        The gate gets the checkpoints in place of those it had, those of check operators that no cell holds included,
        but none that belongs to another monitor.

        Args:
            net: The network or a training cell around it; None where only check operators of others are judged.
            optimizer: Its optimizer.
            also: Whether the gate keeps the checkpoints that it had, as their network trains too; equal names get a 2.
        """
        gate = self.gate
        inside = [] if net is None else [*weights_in(net, optimizer), *net.cells_and_names()]
        self.table.make_room(len(inside) + len(getattr(optimizer, "parameters", ())))
        names = {site: site.name for site in self.table.sites()}
        sites = self._put_inside(net) if net is not None else []
        # Check operators that no cell holds belong to the monitor that trains.
        sites += [site for site in gate.sites if not site.claimed]
        sites += [site for site in self.table.sites() if not (site.claimed or site.watched_by)]
        kept = [site for site in gate.sites if also and site not in sites and site.kind not in SCORES]
        for site in sites:
            while site.name in {each.name for each in kept}:
                site.name += " (2)"
        theirs = left_to_others(sites, net, optimizer, gate)
        for site in theirs:
            site.name = names[site]
        gate.sites[:] = kept
        for site in sites:
            if site not in theirs:
                self._take(site)

    def _take(self, site: Site) -> None:
        site.measure(largest=statistic_of(self._config) == "max")
        self.gate.take(site)

    def _put_inside(self, net: nn.Cell) -> list[Site]:
        protections = self.monitor.protections
        sites: list[Site] = []
        try:
            if reason := why_layers_are_unchecked():
                protections.lacks("NPU_ASD_ENABLE", reason)
                switch_off(net.cells_and_names())
            else:
                compile_without_what_fails()
                installation = install(net, include=self._include, exclude=self._exclude)
                _LOG.info("%s", str(installation).replace("\n", "; "))
                sites = installation.sites
        except UnsupportedError as error:
            if self._judges_history and next(sites_of(net), None) is None:  # gradients of parameters are checked
                _LOG.info("no gradient of an activation is checked: %s", error)
            else:
                self.monitor.problem(str(error))
                protections.lacks("NPU_ASD_ENABLE", str(error), told=True)
        return sites

    def put_around(self, optimizer: nn.Cell, net: nn.Cell | None, reducer: nn.Cell | None) -> None:
        """Guards `optimizer`, and checks its gradients before and after their reducer, by the settings.

        Args:
            optimizer: The optimizer.
            net: The training cell; it is searched for a reducer if none is given.
            reducer: What takes the mean of its gradients over the ranks.
        """
        reducer, sites = reducer_of(net, optimizer, reducer), list[Site]()
        # Each gradient is read once: before the mean over the ranks, where that is known, for there it names a device.
        before, judges_history = reducer is not None and are_averaged(), self._may_judge_history(net)
        if self._config.refuses or judges_history:
            for each in members_of(optimizer):
                sites += self._guard(each, net, gradients=judges_history and not before)
        for each in filter(is_guarded, members_of(optimizer)):
            each.asd_gate.belong_to(self.gate)
        for free in list(self.table.gates.default.guards):  # as check operators that no cell holds
            free.belong_to(self.gate)
        reduced = getattr(optimizer, "parameters", ()) if reducer is None else weights_of(reducer, optimizer, net)
        if before and judges_history and reducer is not None:
            gates = [each.asd_gate for each in members_of(optimizer) if is_guarded(each)]
            sites += self._before_reducer(reducer, reduced, gates)
        for site in sites:
            self._take(site)
        if self.ranks.size > 1:
            self.monitor.protections.has(links=self._words_of_links(reducer))

    def _may_judge_history(self, net: nn.Cell | None) -> bool:
        if not (self._judges_history and net is not None and _has_sparse_gradients(net)):
            return self._judges_history
        self.monitor.protections.lacks("NPU_ASD_ENABLE", _SPARSE)
        return False

    def _words_of_links(self, reducer: nn.Cell | None) -> str:
        if (links := getattr(reducer, "asd_links", None)) is not None:
            return f"sums over the ranks of {len(links.state.link.names)} gradients"
        why = "no reducer of gradients is known" if reducer is None else "the reducer may make something else"
        why = "MindSpore inserts them itself" if operators_are_divided() else why
        return Off(f"sums over the ranks are not compared: {why}")

    def _guard(self, optimizer: nn.Cell, net: nn.Cell | None, *, gradients: bool) -> list[Site]:
        try:
            lower, parts = self._config.confirm > 0, _has_parts(optimizer, net)
            guard(optimizer, gradients=gradients, lower=lower, parts=parts)
        except UnsupportedError as error:
            self.monitor.protections.lacks("ASD_ON_ANOMALY", str(error))
        return list(optimizer.asd_gate.sites) if is_guarded(optimizer) else []

    def look_in_backward_pass(self, net: nn.Cell, optimizer: nn.Cell | None) -> None:
        """Looks at gradients of parameters where they arise, for a loop that clips them before the optimizer."""
        while self._hooks:
            self._hooks.pop().remove()
        if self._judges_history:
            own, self._hooks = look_in_backward_pass(weights_in(net, optimizer), self.gate.sites)
            for site in own:
                if site not in self.gate.sites:
                    self._take(site)

    def tell_apart(self, net: nn.Cell | None) -> None:
        """Gives the checkpoints names that no other monitor has; see `asd.operators.sensors.sharing`."""
        name_apart(self.gate, self.table.gates.others(self.gate), net)

    def _before_reducer(self, reducer: nn.Cell, weights: Sequence[Parameter], gates: Sequence[GateCell]) -> list[Site]:
        try:
            return look_before_reduction(reducer, weights, gates)
        except UnsupportedError as error:  # no slot is free
            reason = f"not all gradients are checked before the mean over the ranks: {error}"
            self.monitor.problem(reason)
            self.monitor.protections.lacks("NPU_ASD_ENABLE", reason, told=True)
        return []


def _has_sparse_gradients(net: nn.Cell) -> bool:
    """Returns whether a graph has gradients of a type that MindSpore itself does not know while it compiles."""
    is_graph = ms.get_context("mode") == ms.GRAPH_MODE
    cells = [cell for _, cell in net.cells_and_names() if getattr(cell, "sparse", False) is True]
    return is_graph and any("Embedding" in kind.__name__ for cell in cells for kind in type(cell).__mro__)


def _has_parts(optimizer: nn.Cell, net: nn.Cell | None) -> bool:
    """Returns whether an optimizer updates shards: tensors sharded over ranks, or tensors that the network lacks."""
    own = getattr(optimizer, "parameters", ())
    known = {id(weight) for weight in net.get_parameters()} if net is not None else {id(weight) for weight in own}
    return any(hasattr(weight, "to_local") or id(weight) not in known for weight in own)

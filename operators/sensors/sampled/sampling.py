"""Sampled layers of one training, and the choice of those that are due in a step."""

import re
import weakref
from collections.abc import Collection, Iterable
from itertools import accumulate, cycle, groupby

import mindspore as ms
from mindspore import nn

from asd.config import Config
from asd.errors import UnsupportedError
from asd.operators.gate.site import is_ours
from asd.operators.gate.step_record import Part, Problems, StepRecord
from asd.operators.private.class_swap import COMPILES_ITSELF, stock_class
from asd.operators.sensors.install import cell_name, compile_patterns
from asd.operators.sensors.sampled.place import MOST_CALLS, Place
from asd.operators.sensors.sampled.product import form_of
from asd.rules.reading import SCORES

_RESULTS = 4  # results computed twice in a step with sampling, about
_EVERY = 16  # steps from one with sampled results to the next: a comparison may be slower than a small layer
_PARTS = 4  # parts of the layers, of which a rerun checks one: all of them may take several times as long as the step
_DETECTOR = "ASD_OPTIONS=detectors:checksum"
_ONLY = "sampled results: in PyNative only"
_PURE = re.compile(
    r"mindspore\.(nn\.layer\.(activation|basic|conv|dense|embedding|math|normalization|padding|pooling)"
    r"|mint\.nn\.layer\.\w+|nn\.loss\.loss)$|mindformers\.(\w+\.)*(layer_norm|layernorm|norm|normalization|linear)$"
)
"""Modules whose layers compute their output from their input and their weights."""
_IMPURE = re.compile(r"Drop|RReLU|BatchNorm|InstanceNorm|Fractional|Sampled|Router")
"""Layers there that draw random numbers or write statistics."""
_places: weakref.WeakKeyDictionary[nn.Cell, Place] = weakref.WeakKeyDictionary()


def put_back_layers() -> None:
    """Ends the sampling of all trainings of this process; layers get their previous class."""
    for cell in list(_places):
        _places.pop(cell).remove(cell)


class Sampling(Part):
    """Sampled results of one `StepMonitor`.

    The step's number decides which are due: they are the same on all ranks, and in a resumed training.

    Args:
        config: Results are sampled by the detector `checksum`.
        exclude: Regular expressions on names of cells; matching cells are left out.
        problems: Reports each problem once.
    """

    def __init__(self, config: Config, exclude: str | Iterable[str], problems: Problems) -> None:
        self._is_wanted = "checksum" in config.active_detectors
        self._is_told = config.rule == "adaptive"  # which brings the detector; with another rule somebody asked for it
        self._exclude, self._problems = exclude, problems
        self._places: list[Place] = []
        self._groups: list[list[Place]] = []
        self._due: Collection[Place] = ()
        self._parts = cycle(range(_PARTS))

    @property
    def is_on(self) -> bool:
        """Returns whether anything is sampled."""
        return bool(self._places)

    def put_on(self, net: nn.Cell | None) -> None:
        """Samples the layers of `net`."""
        self.remove()
        if net is None or not self._is_wanted:
            return
        if ms.get_context("mode") == ms.GRAPH_MODE:
            self._lacks(_ONLY)
            return
        try:
            self._find_places(net)
        except UnsupportedError as error:  # no slot is free
            self._lacks(f"not all results are sampled: {error}")
        for site in [site for place in self._places for site in place.sites]:
            self.gate.take(site)
        sums = accumulate(len(place.sites) for place in self._places)
        turns = groupby(zip(sums, self._places, strict=True), lambda each: (each[0] - 1) // _RESULTS)
        self._groups = [[place for _, place in turn] for _, turn in turns]
        if not self._places:
            self._lacks("no layer is known whose results can be computed again")
            return
        when = f"about {_RESULTS} in one step of {_EVERY}, in PyNative only"
        self.monitor.protections.has(sampled_results=f"of {len(self._places)} layers, {when}")

    def _find_places(self, net: nn.Cell) -> None:
        excluded = compile_patterns("exclude", self._exclude)
        for path, cell in net.cells_and_names():
            name = cell_name(path) or type(cell).__name__
            if is_ours(path) or self._is_left(cell) or any(pattern.search(name) for pattern in excluded):
                continue
            products = {each: form for each, value in vars(cell).items() if (form := form_of(value)) is not None}
            again = repeats(cell)
            own = (value for each in (cell, *type(cell).__mro__) for value in vars(each).values())
            if (products or again) and any(callable(value) and hasattr(value, COMPILES_ITSELF) for value in own):
                self._lacks(f"results of {name} are not sampled: {_ONLY}, and a method of it is compiled")
            elif products or again:
                if cell in _places:
                    _places.pop(cell).remove(cell)
                place = _places[cell] = Place(name, cell, products, repeats=again, problem=self._problems.once)
                self._places.append(place)

    def _is_left(self, cell: nn.Cell) -> bool:
        """Returns whether the monitor of another training samples `cell`, which this one does not train."""
        is_watched = cell in _places and _places[cell].sites[0].watched_by is not None
        return is_watched and not self.gate.trains(cell.get_parameters())

    def report_first_step(self) -> None:
        """Ends the sampling and reports it, where Python called no layer in the first step: all are compiled."""
        if self._places and not any(place.is_called for place in self._places):
            self.gate.sites[:] = [site for site in self.gate.sites if site.kind not in SCORES]
            self.remove()
            self.monitor.protections.lacks(_DETECTOR, f"{_ONLY}; Python calls none of the layers")
            self.monitor.protections.has(sampled_results="")

    def begin_step(self, step: int) -> None:
        """Makes layers due for the step of this number, which comes next."""
        is_due = self._groups and step % _EVERY == 1 % _EVERY
        self._make_due(self._groups[step // _EVERY % len(self._groups)] if is_due else ())

    def end_step(self, step: StepRecord) -> None:
        """Makes layers due for the next step."""
        self.begin_step(step.number + 1)

    def check_again(self, *, more: bool) -> None:
        """Keeps due layers due until the step ends; with `more`, adds the next part of the layers."""
        part = self._places[next(self._parts) :: _PARTS] if more else ()
        self._make_due({*self._due, *part})

    def remove(self) -> None:
        """Gives the layers their previous class."""
        for cell in [cell for cell, place in _places.items() if place in self._places]:
            _places.pop(cell).remove(cell)
        self._places, self._groups, self._due = [], [], ()

    def _make_due(self, places: Collection[Place]) -> None:
        for place in self._due:
            place.calls = 0
        self._due = places
        for place in places:
            place.calls = MOST_CALLS

    def _lacks(self, reason: str) -> None:
        self.monitor.protections.lacks(_DETECTOR, reason, told=self._is_told)


def repeats(cell: nn.Cell) -> bool:
    """Returns whether a layer's call gives the same result each time, but for rounding, and changes no state."""
    kind = stock_class(cell)
    return (
        bool(_PURE.match(kind.__module__) and not _IMPURE.search(kind.__name__))
        and all(is_ours(name) for name in cell.name_cells())
        and all(weight.requires_grad for weight in cell.get_parameters())
        and not any(getattr(cell, name, None) for name in ("inplace", "max_norm"))  # a write in its own input or weight
    )

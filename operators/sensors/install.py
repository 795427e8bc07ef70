"""Checks a network that is already built."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mindspore import Tensor, nn

from asd.errors import ConfigError, UnsupportedError
from asd.operators.gate.site import Site, is_ours
from asd.operators.gate.slots import table
from asd.operators.gate.tap import make_tap
from asd.operators.private.class_swap import put_on
from asd.operators.private.layout import cells_of_other_stages
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.sensors.base import ASDBase

_NORM = re.compile(r"Norm(Ext)?([123]d)?$")
_NOT_A_NORM = re.compile(r"^(Clip|Local|Global|Lp|Spectral|Weight)\w*Norm$|^Norm$|^LossNorm")
_EMBEDDING = re.compile(r"Embedding(s|Ext|Lookup)?$")
_NOT_AN_EMBEDDING = re.compile(r"Rotary|Rope|Position|Sinusoid|Time|Patch")
_WRITTEN_ANEW = re.compile(r"Opt(_\d+)?$")
"""Suffix that level O1 of amp adds to the name of a class whose source it rewrites."""
_WRAPPERS = re.compile(r"^(?:(?:network|_backbone|backbone)\.)+")


@dataclass
class Installation:
    """Result of `install`.

    Attributes:
        sites: The checkpoints, in the order of the network's cells.
        left_out: Pairs of a cell's name and the reason why it is not checked although its class name suggests it.
    """

    sites: list[Site] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def found(self) -> list[str]:
        """Names of the checkpoints."""
        return [site.name for site in self.sites]

    def __str__(self) -> str:
        lines = [f"{len(self.found)} checkpoints: {', '.join(self.found)}"]
        lines += [f"left out {name}: {reason}" for name, reason in self.left_out]
        return "\n".join(lines)


def install(net: nn.Cell, *, include: str | Iterable[str] = (), exclude: str | Iterable[str] = ()) -> Installation:
    """Puts a check on every norm and embedding of `net`, found by the names of their classes.

    Norms of `mindspore.nn`, `mindspore.mint`, mindformers and anything else whose class name ends in `Norm` are found,
    composed ones included; the same for `Embedding`, without positional ones. Cells that hold a check operator such as
    `LayerNormASD` are named after their place and left as they are. No parameter is added. Do it before the first step:
    a graph that is already compiled does not change. In a pipeline each rank checks the cells of its own stage, so the
    stages must be set by then.

    Args:
        net: The network, or the training cell around it.
        include: Regular expressions; cells whose name one of them matches (`re.search`) are checked whatever their
            class.
        exclude: Regular expressions; cells whose name one of them matches are not checked. It wins over `include`.

    Returns:
        What was found and what was left out.

    Raises:
        ConfigError: A regular expression is not valid.
        UnsupportedError: There is nothing to check in `net`.
    """
    wanted, unwanted = compile_patterns("include", include), compile_patterns("exclude", exclude)
    elsewhere, done = cells_of_other_stages(net), Installation()
    found = [(path, cell) for path, cell in net.cells_and_names() if not is_ours(path)]
    switch_off((path, cell) for path, cell in found if id(cell) in elsewhere)
    cells = [(cell_name(path), cell) for path, cell in found if id(cell) not in elsewhere]
    for name, cell in cells:
        operators = list(check_operators(cell, name))
        asked_for = any(pattern.search(name) for pattern in wanted)
        if operators:
            for path, operator in operators:
                done.sites.append(_claim(operator.check_op.site, path))
        elif not (_looks_checkable(cell) or asked_for):
            continue
        elif reason := _why_left_out(name, cell, unwanted, asked_for=asked_for):
            done.left_out.append((name or type(cell).__name__, reason))
        else:
            done.sites.append(_attach(name or type(cell).__name__, cell))
    if not done.sites:
        left_out = "".join(f"; {name} was left out: {reason}" for name, reason in done.left_out)
        raise UnsupportedError(
            f"{type(net).__name__} has nothing to check: none of its {len(cells)} cells is a norm or an embedding"
            f"{left_out}. Name cells with include=."
        )
    return done


def switch_off(cells: Iterable[tuple[str, nn.Cell]]) -> None:
    """Switches off the check operators that these cells hold; before they are compiled."""
    for path, cell in cells:
        for _, operator in list(check_operators(cell, path)):
            operator.enable_check, operator.check_op.site.claimed = False, True


def _why_left_out(name: str, cell: nn.Cell, unwanted: Iterable[re.Pattern[str]], *, asked_for: bool) -> str | None:
    if any(pattern.search(name) for pattern in unwanted):
        return "excluded"
    if isinstance(cell, (nn.Optimizer, nn.TrainOneStepCell)):
        return "no layer of the network"
    return _reason_against(cell) if _looks_checkable(cell) and not asked_for else None


def sites_of(net: nn.Cell) -> Iterator[Site]:
    """Returns the checkpoints that are in `net` already."""
    for name, cell in net.cells_and_names():
        if getattr(cell, "asd_tap", None) is not None:
            yield cell.asd_tap.site
        for _, operator in check_operators(cell, name):
            yield operator.check_op.site


def cell_name(path: str) -> str:
    """Returns the name of a cell without the wrappers that trainings put around a network."""
    return _WRAPPERS.sub("", path)


def compile_patterns(argument: str, given: str | Iterable[str]) -> list[re.Pattern[str]]:
    """Compiles one regular expression or several."""
    try:
        return [re.compile(text) for text in ([given] if isinstance(given, str) else given) if text]
    except re.error as error:
        raise ConfigError(argument, error.pattern, f"it must be a regular expression ({error})") from error


def class_name(cell: nn.Cell) -> str:
    """Returns the name of a cell's class, by which layers are known."""
    return _WRITTEN_ANEW.sub("", type(cell).__name__)


def _looks_checkable(cell: nn.Cell) -> bool:
    name = class_name(cell)
    return bool(_NORM.search(name) or _EMBEDDING.search(name))


def _reason_against(cell: nn.Cell) -> str | None:
    name = class_name(cell)
    if _NORM.search(name) and _NOT_A_NORM.search(name):
        return f"{name} is not a normalization layer"
    if _EMBEDDING.search(name) and _NOT_AN_EMBEDDING.search(name):
        return f"{name} is not a table of learned vectors"
    inner = [type(each).__name__ for each in cell.cells() if _looks_checkable(each) and _reason_against(each) is None]
    return f"{name} contains {inner[0]}, which is checked instead" if inner else None


def check_operators(cell: nn.Cell, path: str = "") -> Iterator[tuple[str, ASDBase]]:
    """Returns each check operator that `cell` holds, with its name where `path` is the cell's."""
    for name, value in vars(cell).items():
        if isinstance(value, ASDBase) and value.enable_check and "check_op" in vars(value):
            yield f"{path}.{name}" if path else name, value


def _claim(site: Site, name: str) -> Site:
    site.name, site.claimed = name, True
    return site


class _Uncast(CheckCell):
    """A tap on what a cell returns: PyNative would cast it to the type that mixed precision has for that cell."""

    def __init__(self, tap: Any) -> None:
        super().__init__()
        self.tap, self.site = tap, tap.site

    def construct(self, x):
        return self.tap(x)


def _attach(name: str, cell: nn.Cell) -> Site:
    if getattr(cell, "asd_tap", None) is not None:
        known: Site = cell.asd_tap.site
        return known
    site, base = _claim(table().new_site(name), name), type(cell)

    class Tapped(base):  # type: ignore[misc, valid-type]
        # At the output the gradient is complete before the layer's own backward pass: no order of additions changes.
        def construct(self, *args, **kwargs):
            output = super().construct(*args, **kwargs)
            if isinstance(output, Tensor):
                return self.asd_tap(output)
            if isinstance(output, tuple) and not hasattr(output, "_fields") and isinstance(output[0], Tensor):
                return (self.asd_tap(output[0]), *output[1:])
            return output

    cell.asd_tap = _Uncast(make_tap(site))
    put_on(cell, Tapped)
    return site

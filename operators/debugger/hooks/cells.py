"""Hooks on the modules of a network and on the operators they hold.

A hooked Cell has a class of its own with two faces, as the taps have: `__call__` for PyNative, which hands the call to
the session, and `construct` for the compiler. Names of classes, parameters and checkpoints stay as they were. What is
hooked stays hooked, and does nothing while no session records: a compiled graph could not be changed anyway.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mindspore import Parameter, context, nn, ops

from asd.errors import ConfigError
from asd.operators.checks.base import ASDBase
from asd.operators.debugger.hooks.current import eager_session
from asd.operators.debugger.hooks.graph_taps import module_site, module_taps, operator_tap
from asd.operators.debugger.hooks.session import Label
from asd.operators.debugger.record.values import attributes_of
from asd.operators.precheck.modules import module_attributes
from asd.operators.private.cells import own_parameters
from asd.operators.private.class_swap import put_on, stock_class, take_off
from asd.operators.table.site import is_ours

__all__ = ["Hook", "add_hook", "frame_of", "hook_modules", "hook_operators", "hooks", "modules_at", "unhook"]

_NOT_RECORDED = re.compile(
    r"^(HookBackward|InsertGradientOf|Custom|Morph|GetNext|Load|UpdateState|ScalarSummary|TensorSummary"
    r"|HistogramSummary|ImageSummary|TensorDump)$"
)
_COMPUTES_NOTHING = re.compile(r"^(Shape|DType|Rank|TensorShape|DynamicShape|Size|Depend|StopGradient|Print)$")
"""Recorded in PyNative alone: of a compiled graph these are no part, or say in which order it runs."""


_TAPS = ("asd_tap_site", "asd_tap_inputs", "asd_tap_output")
_CASTS = ("fp16", "fp32", "bf16")
_HOLDERS = (nn.CellList, nn.CellDict)  # they compute nothing


@dataclass(frozen=True)
class Hook:
    """A hooked module or operator.

    Attributes:
        number: Of its taps.
        place: Among the hooks that are counted together, from 0.
        label: Its name.
        counts: How many hooks of each kind its network has.
        cell: The module, or the one that holds the operator.
        inside: The hook of the nearest module around it, or None.
        attributes: Of an operator, or of a module of MindSpore's own, else None.
    """

    number: int
    place: int
    label: Label
    counts: Counter[str]
    cell: nn.Cell
    inside: Hook | None
    attributes: dict[str, Any] | None = None

    def frames(self) -> tuple[str, ...]:
        """Where the code of the module and of those around it is; a compiled graph has no call stack."""
        here = _frame(stock_class(self.cell).construct)
        return here + (self.inside.frames() if self.inside is not None else ())

    def count(self, call: int) -> int:
        """The number of a call in a compiled graph, where nothing tells in which order operators ran.

        Operators are counted in the order in which the network holds them, which is mostly that of their calls.
        """
        return self.place + call * self.counts[self.label.counted]

    def name(self, direction: str, call: int) -> str:
        """The name of a call of a module in a compiled graph."""
        return self.label.name(direction, self.count(call))


@functools.cache
def _frame(construct: Any) -> tuple[str, ...]:
    """One frame, or none where the source is not known. Only its first line is read: Python's own reader parses all."""
    code = getattr(inspect.unwrap(construct), "__code__", None)
    return () if code is None else frame_of(code.co_filename, code.co_firstlineno, "construct")


def frame_of(file: str, number: int, function: str) -> tuple[str, ...]:
    """One frame of a call stack, or none where the source is not known."""
    line = linecache.getline(file, number).strip()
    return (f"File {file}, line {number}, in {function}, \n {line}",) if line else ()


_hooks: list[Any] = []


def hooks() -> Sequence[Any]:
    """All hooks made so far; the place of one is its number."""
    return _hooks


def add_hook(make: Callable[[int], Any]) -> Any:
    """Adds to `hooks` what `make` makes of its number."""
    _hooks.append(make(len(_hooks)))
    return _hooks[-1]


def modules_at(nets: Sequence[nn.Cell], path: str) -> tuple[nn.Cell, ...]:
    """The module with that path, as `hook_modules` names it; the nets themselves where it is empty.

    Raises:
        ConfigError: There is none.
    """
    paths = {each: cell for each, cell, _ in _modules(nets)}
    if path and path not in paths:
        valid = f"valid is the path of a module inside the network: {', '.join(sorted(paths))[:400]}"
        raise ConfigError("inside", path, valid)
    return (paths[path],) if path else tuple(nets)


def hook_modules(nets: Sequence[nn.Cell], *, in_graph: bool, inside: str | None = None) -> None:
    """Hooks every module inside `nets`; the nets themselves have no name, so they are left out.

    Args:
        nets: One network, or several whose modules are named after their index.
        in_graph: Whether compiled graphs are recorded too.
        inside: Path of the module that alone is, with those that it holds: the others cost the compiler nothing. Empty
            for those that the nets hold, None for all.
    """
    counts = _counts_of(nets)
    paths: dict[int, str] = {}
    for path, cell, above in _modules(nets):
        paths[id(cell)] = path
        if getattr(cell, "asd_tap_hook", None) is None:
            text = f"Cell.{path}.{type(cell).__name__}"
            _hook_module(cell, Label(text, module=True, counted=text), counts, above)
        near = inside is None or inside in (path, paths[id(above)] if above is not None else "")
        if in_graph and near and "asd_tap_site" not in vars(cell):
            _tap_module(cell)


def hook_operators(nets: Sequence[nn.Cell], *, in_graph: bool, inside: str | None = None) -> None:
    """Hooks every operator that is an attribute of a module or of one of `nets`; see `hook_modules`."""
    counts = _counts_of(nets)
    cells = [("", net, None) for net in nets] + list(_modules(nets))
    for path, cell, above in cells:
        if inside not in (None, path):
            continue
        hook = getattr(cell, "asd_tap_hook", None) or (getattr(above, "asd_tap_hook", None) if above else None)
        for name, holder, place, value in list(_operators(cell)):
            if isinstance(value, ops.Primitive) and not name.startswith("asd_") and _is_recorded(value):
                text = f"Primitive.{name}.{type(value).__name__}"
                new = _new_hook(Label(text, module=False, counted=text), counts, cell, hook, attributes_of(value))
                computes = not _COMPUTES_NOTHING.match(value.name)
                operator = _Operator(value, new, in_graph=in_graph and computes)
                # What `to_float` says: the compiler casts what goes into an operator.
                operator.add_flags(**{name: flag for name, flag in cell.get_flags().items() if name in _CASTS})
                object.__setattr__(holder, place, operator)


def _is_recorded(operator: ops.Primitive) -> bool:
    in_graph = context.get_context("mode") == context.GRAPH_MODE
    # A graph needs a Parameter that an operator updates itself: in a cell of our own a cast would stand before it.
    left = _COMPUTES_NOTHING.match(operator.name) or getattr(operator, "side_effect_mem", False)
    return not _NOT_RECORDED.match(operator.name) and not (in_graph and left)


def unhook(nets: Sequence[nn.Cell]) -> None:
    """Makes `nets` what they were before `hook_modules` and `hook_operators`."""
    for net in nets:
        vars(net).pop("asd_tap_counts", None)
        for _, cell in list(net.cells_and_names()):
            for _, holder, place, value in list(_operators(cell)):
                if isinstance(value, _Operator):
                    object.__setattr__(holder, place, value.primitive)
            if "asd_tap_layers" in vars(cell):
                for layer in cell.asd_tap_layers:
                    take_off(cell, layer)
                for name in ("asd_tap_hook", "asd_tap_layers", *_TAPS):
                    vars(cell).pop(name, None)


def _operators(cell: nn.Cell) -> Iterator[tuple[str, object, str, Any]]:
    """The attributes of a module: name, what holds it, its name there, and it; of a check operator what it checks."""
    for name, value in vars(cell).items():
        if isinstance(value, ASDBase):
            yield name, value, "op", value.op
        else:
            yield name, cell, name, value


def _counts_of(nets: Sequence[nn.Cell]) -> Counter[str]:
    """The counts that belong to `nets`: those of another network of this process are others."""
    if "asd_tap_counts" not in vars(nets[0]):
        object.__setattr__(nets[0], "asd_tap_counts", Counter())
    counts: Counter[str] = nets[0].asd_tap_counts
    return counts


def _new_hook(
    label: Label, counts: Counter[str], cell: nn.Cell, inside: Hook | None, attributes: dict[str, Any] | None = None
) -> Hook:
    place = counts[label.counted]
    counts[label.counted] += 1
    hook: Hook = add_hook(lambda number: Hook(number, place, label, counts, cell, inside, attributes))
    return hook


def _modules(nets: Sequence[nn.Cell]) -> Iterator[tuple[str, nn.Cell, nn.Cell | None]]:
    """Path, module, and the module it is in."""
    for index, net in enumerate(nets):
        prefix = "" if len(nets) == 1 else f"{index}."
        known: dict[str, nn.Cell] = {}
        for path, cell in list(net.cells_and_names()):
            if not path or is_ours(path) or isinstance(cell, _HOLDERS):
                continue
            known[path] = cell
            around = path
            above = None
            while "." in around and above is None:
                around = around.rpartition(".")[0]
                above = known.get(around)
            yield prefix + path, cell, above


def _hook_module(cell: nn.Cell, label: Label, counts: Counter[str], above: nn.Cell | None) -> None:
    base = type(cell)
    hook = _new_hook(label, counts, cell, getattr(above, "asd_tap_hook", None), module_attributes(cell))

    class Hooked(base):  # type: ignore[misc, valid-type]
        def __call__(self, *args, **kwargs):
            session = eager_session()
            if session is None:
                return super().__call__(*args, **kwargs)
            own = _own_parameters(self)
            hook: Hook = self.asd_tap_hook
            return session.call(
                hook.label, super().__call__, args, kwargs, attributes=hook.attributes, parameters=own
            )  # fmt: skip

    # Past Cell's own __setattr__: a registered child would be called by a SequentialCell and listed by everybody.
    object.__setattr__(cell, "asd_tap_hook", hook)
    object.__setattr__(cell, "asd_tap_layers", [put_on(cell, Hooked)])


def _tap_module(cell: nn.Cell) -> None:
    base = type(cell)

    class Tapped(base):  # type: ignore[misc, valid-type]
        def construct(self, *args, **kwargs):
            inputs = self.asd_tap_inputs(self.asd_tap_site[0], args)
            return self.asd_tap_output(self.asd_tap_site, super().construct(*inputs, **kwargs), args, kwargs)

    places = len(inspect.signature(base.construct).parameters) - 1
    for name, value in zip(_TAPS, (module_site(cell.asd_tap_hook.number, places), *module_taps()), strict=True):
        object.__setattr__(cell, name, value)
    cell.asd_tap_layers.append(put_on(cell, Tapped))


def _own_parameters(cell: nn.Cell) -> dict[str, Parameter]:
    found: dict[str, Parameter] = dict(own_parameters(cell).items())
    return {name: parameter for name, parameter in found.items() if parameter is not None}


class _Operator(nn.Cell):
    """An operator in its place as an attribute of a module."""

    def __init__(self, primitive: ops.Primitive, hook: Hook, *, in_graph: bool) -> None:
        super().__init__(auto_prefix=False)
        # Past Cell's own __setattr__, which would rename the operator.
        object.__setattr__(self, "primitive", primitive)
        object.__setattr__(self, "asd_hook", hook)
        # One with a side effect needs the Parameter itself, which no identity may stand before.
        self.tapped = in_graph and not getattr(primitive, "side_effect_mem", False)
        if self.tapped:
            for name, value in operator_tap(hook.number)._asdict().items():
                object.__setattr__(self, name, value)

    def __call__(self, *args, **kwargs):
        session = eager_session()
        if session is None:
            return self.primitive(*args, **kwargs)
        hook: Hook = self.asd_hook
        return session.call(hook.label, self.primitive, args, kwargs, attributes=hook.attributes)

    def construct(self, *args):
        if self.tapped:
            result = self.primitive(*self.before(self.taps, args))
            result = self.after(self.tap_back, self.places, self.only, result, args)
        else:
            result = self.primitive(*args)
        return result

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "primitive"), name)

"""In which order a compiled graph makes the calls that were found in the source: their numbers are those of PyNative.

A graph runs what does not depend on one another in any order, so the numbers come from the source: it is gone through as
Python would run it, module by module and loop by loop.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mindspore import nn

from asd.operators.debugger import call_taps
from asd.operators.debugger.cells import Hook, add_hook, frame_of
from asd.operators.debugger.session import Label

__all__ = ["Code", "Cycle", "Graph", "Site", "Unknown", "graph_of", "known", "of_the_source"]

_BUILTINS = {"range", "len", "enumerate", "zip", "reversed", "list", "tuple"}


class Unknown(Exception):  # noqa: N818 - no error: the source does not tell
    """What an expression is will be known when it runs."""


def known(node: ast.AST, code: Code, values: dict[str, Any] | None = None) -> Any:
    """What an expression is, as far as it does not depend on what is computed.

    Args:
        node: The expression.
        code: Where it stands.
        values: Of local variables.

    Raises:
        Unknown: It depends on that.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return code.value_of(node.id, values or {})
    if isinstance(node, ast.Attribute):
        owner = known(node.value, code, values)
        if isinstance(owner, (types.ModuleType, nn.Cell)) or node.attr in vars(type(owner)):
            return _found(lambda: getattr(owner, node.attr))
    if isinstance(node, ast.Subscript):
        owner, index = known(node.value, code, values), known(node.slice, code, values)
        if isinstance(owner, (list, tuple, dict, nn.CellList, nn.SequentialCell, nn.CellDict)):
            return _found(lambda: owner[index])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
        make = code.value_of(node.func.id, values or {})
        arguments = [known(each, code, values) for each in node.args]
        if make is getattr(builtins, node.func.id) and not node.keywords:
            return _found(lambda: make(*arguments))
    raise Unknown


def _found(find: Any) -> Any:
    try:
        return find()
    except Exception as error:
        raise Unknown from error


@dataclass(eq=False)
class Code:
    """One function as the compiler parsed it.

    Attributes:
        function: It.
        instance: The module whose method it is, or None.
        inside: The hook of the module that its calls belong to.
        graph: That it is part of.
        callers: The code objects of the functions that lead to it, itself included.
        local: Names that it assigns.
        events: What it calls in the order of Python: sites, other functions, and loops of those.
    """

    function: types.FunctionType
    instance: Any
    inside: Hook | None
    graph: Graph
    callers: tuple[types.CodeType, ...] = ()
    local: frozenset[str] = frozenset()
    events: list[Any] = field(default_factory=list)

    @property
    def module(self) -> Any:
        """That the function is in."""
        return sys.modules.get(self.function.__module__)

    def value_of(self, name: str, values: dict[str, Any]) -> Any:
        """Of a name in this function."""
        if name in values:
            return values[name]
        arguments = self.function.__code__.co_varnames
        if self.instance is not None and arguments[:1] == (name,):
            return self.instance
        if name in self.local:
            raise Unknown
        free = self.function.__code__.co_freevars
        if name in free:
            return _found(lambda: self.function.__closure__[free.index(name)].cell_contents)  # type: ignore[index]
        scope = self.function.__globals__
        return scope[name] if name in scope else _found(lambda: getattr(builtins, name))


@dataclass(eq=False)
class Site:
    """A call in the source; to whoever asks for the taps of a graph it is what a `Hook` is.

    Attributes:
        number: Of its taps.
        code: The function it is in.
        text: Its name, such as `Mint.add`; of an operator of Python that of a tensor on the left.
        other: The name for a tensor on the right.
        line: Of the source file.
        attributes: None, see `Hook`.
    """

    number: int
    code: Code
    text: str
    other: str
    line: int
    attributes: None = None

    @property
    def label(self) -> Label:
        """Its name, known when the graph is made."""
        text = self.other if self.number in call_taps.reflected else self.text
        return Label(text, module=False, counted=text)

    @property
    def inside(self) -> Hook | None:
        """See `Hook`."""
        return self.code.inside

    def frames(self) -> tuple[str, ...]:
        """Where the call is, and the modules around it."""
        function = self.code.function
        here = frame_of(function.__code__.co_filename, self.line, function.__name__)
        return here + (self.inside.frames() if self.inside is not None else ())

    def cycle(self, call: int) -> Cycle:
        """Where a call has its place."""
        return self.code.graph.cycle(self, call)


@dataclass(frozen=True)
class Cycle:
    """The place of a call among those of its name that one run of a graph makes.

    Attributes:
        run: Of the graph, from 0.
        place: Among the calls of this name.
        calls: How many there are.
    """

    run: int
    place: int
    calls: int


class Graph:
    """What the compiler parsed for one graph."""

    def __init__(self) -> None:
        self.codes: dict[tuple[int, int], Code] = {}
        self.is_asked = False
        self._places: dict[Site, list[int]] = {}
        self._counts: Counter[str] = Counter()

    def cycle(self, site: Site, call: int) -> Cycle:
        """See `Site.cycle`."""
        if not self.is_asked:
            self.is_asked = True
            self._count()
        places = self._places.get(site) or [0]
        run, turn = divmod(call, len(places))
        return Cycle(run, places[turn], max(self._counts[site.label.counted], 1))

    def _count(self) -> None:
        called: set[Code] = set()
        order: dict[Code, list[Site]] = {}
        for code in self.codes.values():
            order[code] = list(_walk(code, {}, (), called))
        for code, sites in order.items():
            if code in called:
                continue
            for site in sites:
                if site.number in call_taps.live:
                    counted = site.label.counted
                    self._places.setdefault(site, []).append(self._counts[counted])
                    self._counts[counted] += 1

    def of_cell(self, cell: nn.Cell, name: str) -> list[Code]:
        """The methods `name` of a module: its own, then those it inherits."""
        return [code for code in self.codes.values() if code.instance is cell and code.function.__name__ == name]


def _walk(code: Code, values: dict[str, Any], running: tuple[Code, ...], called: set[Code]) -> Iterator[Site]:
    if code not in running:
        yield from _walk_events(code.events, code, values, (*running, code), called)


def _walk_events(
    events: list[Any], code: Code, values: dict[str, Any], running: tuple[Code, ...], called: set[Code]
) -> Iterator[Site]:
    for event in events:
        if isinstance(event, Site):
            yield event
        elif not isinstance(event, tuple):
            for each in _called(event, code, values):
                called.add(each)
                yield from _walk(each, {}, running, called)
        else:
            target, over, inner = event
            for bound in _turns(target, over, code, values):
                yield from _walk_events(inner, code, {**values, **bound}, running, called)


def _called(node: Any, code: Code, values: dict[str, Any]) -> list[Code]:
    graph = code.graph
    if isinstance(node, ast.AST) and _is_super(node):
        above = graph.of_cell(code.instance, node.attr)  # type: ignore[attr-defined]
        return above[above.index(code) + 1 :][:1] if code in above else above[:1]
    try:
        value = known(node, code, values) if isinstance(node, ast.AST) else node
    except Unknown:
        return []
    if isinstance(value, nn.Cell):
        return graph.of_cell(value, "construct")[:1]
    function = inspect.unwrap(getattr(value, "__func__", value))
    found = graph.codes.get((id(function), id(getattr(value, "__self__", None))))
    return [found] if found is not None else []


def _is_super(node: ast.AST) -> bool:
    inner = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "super"


def _turns(target: ast.AST, over: ast.AST, code: Code, values: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        items = list(known(over, code, values))
    except (Unknown, TypeError):
        return [{}]
    return [dict(_bound(target, item)) for item in items]


def _bound(target: ast.AST, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(target, ast.Name):
        yield target.id, item
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(item, (tuple, list)):
        for inner, each in zip(target.elts, item, strict=False):
            yield from _bound(inner, each)


_graph = Graph()


def graph_of(function: Any, instance: Any) -> Graph:
    """The graph that is being parsed, of which a function is part: a new one if it was run, or has the function."""
    global _graph
    if _graph.is_asked or (id(function), id(instance)) in _graph.codes:
        _graph = Graph()
    return _graph


def of_the_source(code: Code, text: str, other: str, line: int) -> Site:
    """A new site."""
    return add_hook(lambda number: Site(number, code, text, other, line))

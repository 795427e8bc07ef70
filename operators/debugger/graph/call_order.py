"""In which order a compiled graph makes the calls that were found in the source: they get the numbers of PyNative.

A graph runs what does not depend on one another in any order, so the numbers come from the source: it is gone through
as Python would run it, module by module and loop by loop.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import types
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mindspore import nn

from asd.operators.debugger.graph import call_taps
from asd.operators.debugger.graph.source_values import Unknown, found, known, plain
from asd.operators.debugger.hooks.cells import Hook, add_hook, frame_of, hooks
from asd.operators.debugger.hooks.graph_taps import live
from asd.operators.debugger.hooks.session import Label

__all__ = [
    "BREAK",
    "CONTINUE",
    "RETURN",
    "Branch",
    "CallSite",
    "Code",
    "Cycle",
    "Graph",
    "Loop",
    "graph_of",
    "graph_of_call",
    "of_the_source",
]


class Loop(NamedTuple):
    """What happens as often as `over` has items, which `target` is called."""

    target: ast.AST
    over: ast.AST
    events: list[Any]


class Branch(NamedTuple):
    """What happens if `test` is true, and what otherwise."""

    test: ast.AST
    events: list[Any]
    otherwise: list[Any]


RETURN, BREAK, CONTINUE = object(), object(), object()
"""What ends a function, a loop, or a round of it."""


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
        choices: By such a name: the layers, `self.layer`, one of which it may be.
        events: What it calls in the order of Python: sites, other functions, and loops of those.
    """

    function: types.FunctionType
    instance: Any
    inside: Hook | None
    graph: Graph
    callers: tuple[types.CodeType, ...] = ()
    local: frozenset[str] = frozenset()
    choices: dict[str, list[ast.AST]] = field(default_factory=dict)
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
            return found(lambda: self.function.__closure__[free.index(name)].cell_contents)  # type: ignore[index]
        scope = self.function.__globals__
        return scope[name] if name in scope else found(lambda: getattr(builtins, name))


@dataclass(eq=False)
class CallSite:
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
        self._places: dict[int, list[int]] = {}
        self._counts: Counter[str] = Counter()

    def cycle(self, hook: Hook | CallSite, call: int) -> Cycle:
        """Where a call has its place."""
        if hook.number not in self._places:
            live.add(hook.number)
            self._add(hook)
        places = self._places[hook.number]
        run, turn = divmod(call, len(places))
        return Cycle(run, places[turn], self._counts[hook.label.counted])

    def count(self) -> None:
        """Gives all calls their places: the graph is made."""
        self.is_asked = True
        called: set[Code] = set()
        order = {code: list(_walk(code, (), called)) for code in self.codes.values()}
        for code, calls in order.items():
            if code not in called:
                for hook in calls:
                    self._add(hook)
        modules = {id(code.instance) for code in self.codes.values()}
        for hook in hooks():  # operators whose calls were not found
            if isinstance(hook, Hook) and hook.number not in self._places and id(hook.cell) in modules:
                self._add(hook)

    def _add(self, hook: Hook | CallSite) -> None:
        if hook.number in live and not hook.label.module:
            _planned[hook.number] = self
            counted = hook.label.counted
            self._places.setdefault(hook.number, []).append(self._counts[counted])
            self._counts[counted] += 1

    def of_cell(self, cell: nn.Cell, name: str) -> list[Code]:
        """The methods `name` of a module: its own, then those it inherits."""
        return [code for code in self.codes.values() if code.instance is cell and code.function.__name__ == name]


def _walk(code: Code, running: tuple[Code, ...], called: set[Code]) -> Iterator[Hook | CallSite]:
    if code not in running:
        yield from _walk_events(code.events, code, {}, (*running, code), called)


def _walk_events(
    events: list[Any], code: Code, values: dict[str, Any], running: tuple[Code, ...], called: set[Code]
) -> Generator[Hook | CallSite, None, object]:
    """Returns what ended it: one of the three above, or None."""
    for event in events:
        if event in (RETURN, BREAK, CONTINUE):
            return event
        if isinstance(event, CallSite):
            yield event
        elif isinstance(event, Loop):
            if (yield from _walk_loop(event, code, values, running, called)):
                return RETURN
        elif not isinstance(event, Branch):
            yield from _walk_called(_called(event, code, values), running, called)
        elif end := (yield from _walk_branch(event, code, values, running, called)):
            return end
    return None


def _walk_loop(
    loop: Loop, code: Code, values: dict[str, Any], running: tuple[Code, ...], called: set[Code]
) -> Generator[Hook | CallSite, None, bool]:
    """Returns whether the function ended."""
    for bound in _turns(loop.target, loop.over, code, values):
        end = yield from _walk_events(loop.events, code, {**values, **bound}, running, called)
        if end in (RETURN, BREAK):
            return end is RETURN
    return False


def _walk_called(targets: list[Any], running: tuple[Code, ...], called: set[Code]) -> Iterator[Hook | CallSite]:
    for each in targets:
        if isinstance(each, Code):
            called.add(each)
            yield from _walk(each, running, called)
        else:
            yield each


def _walk_branch(
    branch: Branch, code: Code, values: dict[str, Any], running: tuple[Code, ...], called: set[Code]
) -> Generator[Hook | CallSite, None, object]:
    try:
        chosen = branch.events if plain(known(branch.test, code, values)) else branch.otherwise
    except Unknown:
        yield from _likelier(
            list(_walk_events(branch.events, code, values, running, called)),
            list(_walk_events(branch.otherwise, code, values, running, called)),
        )
        return None
    return (yield from _walk_events(chosen, code, values, running, called))


def _likelier(first: list[Hook | CallSite], second: list[Hook | CallSite]) -> list[Hook | CallSite]:
    """Of two branches that which the graph has: the calls of the other alone are not in it."""
    only_first = any(each.number in live and each not in second for each in first)
    only_second = any(each.number in live and each not in first for each in second)
    if only_first != only_second:
        return first if only_first else second
    return first + [each for each in second if each not in first]


def _called(node: Any, code: Code, values: dict[str, Any]) -> list[Any]:
    graph = code.graph
    if isinstance(node, ast.AST) and _is_super(node):
        above = graph.of_cell(code.instance, node.attr)  # type: ignore[attr-defined]
        return above[above.index(code) + 1 :][:1] if code in above else above[:1]
    try:
        value = known(node, code, values) if isinstance(node, ast.AST) else node
    except Unknown:
        return _chosen(node, code, values)
    hook = getattr(getattr(value, "op", value), "asd_hook", None)
    if hook is not None:
        return [hook]
    if isinstance(value, nn.Cell):
        return graph.of_cell(value, "construct")[:1]
    function = inspect.unwrap(getattr(value, "__func__", value))
    found = graph.codes.get((id(function), id(getattr(value, "__self__", None))))
    return [found] if found is not None else []


def _chosen(node: Any, code: Code, values: dict[str, Any]) -> list[Any]:
    """What `layer` calls after `layer = self.a if condition else self.b`: that which the graph has, if it is one."""
    choices = code.choices.get(node.id, []) if isinstance(node, ast.Name) else []
    found: dict[int, ast.AST] = {}
    for each in choices:
        try:
            value = known(each, code, values)
        except Unknown:
            continue
        hook = getattr(value, "asd_hook", getattr(value, "asd_tap_hook", None))
        if hook is not None and hook.number in live:
            found[hook.number] = each
    only = list(found.values())
    return _called(only[0], code, values) if len(only) == 1 else []


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
_planned: dict[int, Graph] = {}


def graph_of(function: Any, instance: Any) -> Graph:
    """The graph that is being parsed, of which a function is part: a new one if it was run, or has the function."""
    global _graph
    if _graph.is_asked or (id(function), id(instance)) in _graph.codes:
        _graph = Graph()
    return _graph


def graph_of_call(hook: Hook | CallSite) -> Graph:
    """The graph that makes a call that was delivered."""
    if isinstance(hook, CallSite):
        graph = hook.code.graph
    else:
        if not _graph.is_asked:
            _graph.count()
        graph = _planned.get(hook.number, _graph)
    if not graph.is_asked:
        graph.count()
    return graph


def of_the_source(code: Code, text: str, other: str, line: int) -> CallSite:
    """A new site."""
    site: CallSite = add_hook(lambda number: CallSite(number, code, text, other, line))
    return site

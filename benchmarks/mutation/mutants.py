"""Which places of a file can be changed, and how."""

import ast
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator, operator_names

Span = tuple[tuple[int, int], tuple[int, int]]
"""Line from 1 and column from 0 of the first character, and of the one behind the last."""


class Mutant(NamedTuple):
    """A file with one change."""

    file: str  # relative to the root of the checkout
    line: int  # from 1
    function: str  # the outermost function around the change; empty where what changes runs when the module is imported
    kind: str  # what sort of change it is
    before: str  # the line
    after: str  # what becomes of it
    source: str  # the changed file
    draw: float  # from 0 to 1, by the seed: the order in which mutants are tried

    @property
    def id(self) -> str:
        """The same in each run, as long as the file is the same."""
        facts = repr((self.file, self.line, self.kind, self.before, self.after))
        return hashlib.sha256(facts.encode()).hexdigest()[:10]


class RemoveStatement(Operator):
    """Replaces a statement of a function by `pass`, which cosmic-ray itself does not do: a guard that is gone."""

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """See `Operator`."""
        if node.parent is not None and node.parent.type == "simple_stmt" and _inside_function(node):
            call = node.type in ("atom_expr", "power") and node.children[-1].get_code().startswith("(")
            if call or node.type in ("expr_stmt", "return_stmt", "raise_stmt", "del_stmt"):
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """See `Operator`."""
        return parso.parse(f"{node.get_first_leaf().prefix}pass")

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """See `Operator`."""
        return (Example("def f():\n    g()", "def f():\n    pass"),)


def mutants(root: Path, file: str, seed: int, share: float) -> Iterator[Mutant]:
    """One change for each place and kind of change, chosen by `seed`; of all of them a `share` from 0 to 1.

    What is chosen at a place depends on its line alone, so that a change elsewhere in the file chooses nothing anew.
    """
    source = (root / file).read_text(encoding="utf-8")
    lines = source.splitlines()
    tree = ast.parse(source)
    functions, skipped = list(_outermost_functions(tree)), list(_annotations(tree))
    for (kind, start), ways in sorted(_places(source, skipped).items()):
        random_ = random.Random(f"{seed} {file} {lines[start[0] - 1]} {start[1]} {kind}")
        draw, (operator, occurrence) = random_.random(), random_.choice(ways)
        if draw < share:
            changed = mutate_code(source, operator, occurrence)
            before, after = _difference(lines, changed.splitlines())
            where = [name for name, first, last in functions if first <= start[0] <= last]
            yield Mutant(file, start[0], where[0] if where else "", kind, before, after, changed, draw)


def _places(source: str, skipped: list[Span]) -> dict[tuple[str, tuple[int, int]], list[tuple[Operator, int]]]:
    """Per kind of change and place the operators that change it, each with the number of the place for it."""
    found: dict[tuple[str, tuple[int, int]], list[tuple[Operator, int]]] = {}
    nodes = list(ast_nodes(get_ast(source)))
    operators = [(name.split("/")[1], get_operator(name)()) for name in operator_names() if "Variable" not in name]
    for name, operator in [*operators, ("RemoveStatement", RemoveStatement())]:
        spans = (span for node in nodes for span in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(spans):
            if not any(first <= start and end <= last for first, last in skipped):
                found.setdefault((name.split("_")[0], start), []).append((operator, occurrence))
    return found


def _inside_function(node: Any) -> bool:
    while node is not None and node.type not in ("funcdef", "classdef"):
        node = node.parent
    return node is not None and node.type == "funcdef"


def _outermost_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Name, first and last line of the body of each function that is in no other."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node.body[0].lineno, node.end_lineno or node.lineno
        else:
            name = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
            yield from _outermost_functions(node, name)


def _annotations(tree: ast.AST) -> Iterator[Span]:
    """Types are never run."""
    for node in ast.walk(tree):
        for kind in ("annotation", "returns"):
            found = getattr(node, kind, None)
            if found is not None:
                end = (found.end_lineno, found.end_col_offset)
                yield (found.lineno, found.col_offset), end


def _difference(before: list[str], after: list[str]) -> tuple[str, str]:
    """The lines that differ, without those that don't."""
    first = next(number for number, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    more = len(before) - len(after)
    last = len(before)
    while last > first + 1 and last - more > first and before[last - 1] == after[last - 1 - more]:
        last -= 1
    old, new = before[first:last], after[first : last - more]
    return " ".join(map(str.strip, old)), " ".join(map(str.strip, new))

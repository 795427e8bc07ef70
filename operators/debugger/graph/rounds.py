"""Loops and comprehensions written out round by round: each of their calls gets taps of its own.

A graph makes rounds in any order where none depends on another, so calls that shared a tap could not be told apart.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

from mindspore import nn

__all__ = ["rounds_of_comprehension", "rounds_of_loop"]

Known = Callable[[ast.AST], Any]
_LATER = (ast.Break, ast.Continue, ast.Lambda, ast.FunctionDef)  # these end a round, or see what a name is later


def rounds_of_comprehension(node: ast.ListComp | ast.GeneratorExp, known: Known, most: int) -> list[ast.AST] | None:
    """What a comprehension makes of each of its items; None where these are not known, or too many.

    Args:
        node: The comprehension.
        known: What an expression is, or anything else where that is not known.
        most: Rounds: each costs the compiler as much as what it makes.
    """
    first = node.generators[0]
    if len(node.generators) > 1 or first.ifs:
        return None
    rounds = _rounds([node.elt], first.target, _items(first.iter, known), most)
    return None if rounds is None else [each for (each,) in rounds]


def rounds_of_loop(node: ast.For, known: Known, most: int) -> list[list[ast.AST]] | None:
    """The statements of each round of a loop, the last with what its names are afterwards; arguments as above."""
    items = _items(node.iter, known)
    if any(isinstance(each, _LATER) for statement in node.body for each in ast.walk(statement)):
        return None
    rounds = _rounds(node.body, node.target, items, most)
    if not rounds or items is None:
        return None
    target = copy.deepcopy(node.target)
    rounds[-1].append(ast.copy_location(ast.Assign([target], _placed(copy.deepcopy(items[-1]), node)), node))
    return rounds


def _rounds(nodes: list[Any], target: ast.AST, items: list[Any] | None, most: int) -> list[list[ast.AST]] | None:
    if items is None or len(items) > most:
        return None
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    for each in (inner for node in nodes for inner in ast.walk(node)):
        if isinstance(each, ast.Name) and each.id in names and isinstance(each.ctx, ast.Store):
            return None
    found = []
    for item in items:
        parts = item.elts if isinstance(target, ast.Tuple) and isinstance(item, ast.Tuple) else [item]
        if len(names) != len(targets) or len(parts) != len(names):
            return None
        instead = _Instead(dict(zip(names, parts, strict=True)))
        found.append([instead.visit(copy.deepcopy(node)) for node in nodes])
    return found


class _Instead(ast.NodeTransformer):
    """Puts items in the place of names."""

    def __init__(self, items: dict[str, ast.AST]) -> None:
        self._items = items

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The name, or another."""
        item = self._items.get(node.id)
        return node if item is None else _placed(copy.deepcopy(item), node)


def _placed(item: ast.AST, node: ast.AST) -> Any:
    """With the place of a node in the source, for messages of the compiler."""
    for each in ast.walk(item):
        ast.copy_location(each, node)
        for token in ("first_token", "last_token"):
            if hasattr(node, token):
                setattr(each, token, getattr(node, token))
    return item


def _items(over: ast.expr, known: Known) -> list[Any] | None:
    """The items of what is gone through, as source that may be read more than once."""
    if isinstance(over, (ast.Tuple, ast.List)):
        return list(over.elts) if all(map(_is_plain, over.elts)) else None
    value = known(over)
    if isinstance(over, ast.Call) and isinstance(value, (enumerate, zip)):
        return _tuples(over, value, known)
    if isinstance(value, (nn.CellList, nn.SequentialCell)) and _is_plain(over):
        return [ast.Subscript(over, ast.Constant(place), ast.Load()) for place in range(len(value))]
    if isinstance(value, (range, list, tuple)) and all(isinstance(each, (int, float, str)) for each in value):
        return [ast.Constant(each) for each in value]
    return None


def _tuples(over: ast.Call, value: Any, known: Known) -> list[Any] | None:
    """Those of `enumerate(self.cells)`, from 0, and of `zip(self.cells, self.others)`."""
    columns = [_items(each, known) for each in over.args]
    if isinstance(value, enumerate):
        columns = [[ast.Constant(place) for place in range(len(columns[0] or ()))], *columns]
        if len(columns) > 2:
            return None
    if any(each is None for each in columns):
        return None
    return [ast.Tuple(list(each), ast.Load()) for each in zip(*filter(None, columns), strict=False)]


def _is_plain(node: ast.AST) -> bool:
    """Whether it is a constant, `name` or `self.layer`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))

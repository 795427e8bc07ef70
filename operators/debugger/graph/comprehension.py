"""A comprehension written out item by item: each of its calls gets taps of its own.

A graph makes the rounds of a comprehension in any order, as none depends on another, so calls that shared a tap could
not be told apart.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from mindspore import nn

__all__ = ["written_out"]

_MOST = 16  # rounds: each costs the compiler as much as what it makes


def written_out(node: ast.ListComp | ast.GeneratorExp, over: Any) -> list[ast.AST] | None:
    """What a comprehension makes of each of its items; None where these are not known, or too many.

    Args:
        node: The comprehension.
        over: What it goes through, or anything else where that is not known.
    """
    first = node.generators[0]
    if len(node.generators) > 1 or first.ifs or not isinstance(first.target, ast.Name):
        return None
    name, items = first.target.id, _items(first.iter, over)
    names = [each for each in ast.walk(node.elt) if isinstance(each, ast.Name) and each.id == name]
    if items is None or len(items) > _MOST or any(isinstance(each.ctx, ast.Store) for each in names):
        return None
    return [_Instead(name, item).visit(copy.deepcopy(node.elt)) for item in items]


class _Instead(ast.NodeTransformer):
    """Puts an item in the place of a name."""

    def __init__(self, name: str, item: ast.AST) -> None:
        self._name, self._item = name, item

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The name, or another."""
        if node.id != self._name:
            return node
        item = copy.deepcopy(self._item)
        for each in ast.walk(item):
            ast.copy_location(each, node)
            for token in ("first_token", "last_token"):
                if hasattr(node, token):
                    setattr(each, token, getattr(node, token))
        return item


def _items(over: ast.expr, value: Any) -> list[Any] | None:
    """The items of what a comprehension goes through, as source that may be read more than once."""
    if isinstance(over, (ast.Tuple, ast.List)):
        return list(over.elts) if all(map(_is_plain, over.elts)) else None
    if isinstance(value, (nn.CellList, nn.SequentialCell)) and _is_plain(over):
        return [ast.Subscript(over, ast.Constant(place), ast.Load()) for place in range(len(value))]
    if isinstance(value, (range, list, tuple)) and all(isinstance(each, (int, float, str)) for each in value):
        return [ast.Constant(each) for each in value]
    return None


def _is_plain(node: ast.AST) -> bool:
    """Whether it is a constant, `name` or `self.layer`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))

"""What expressions in the source of a network are, as far as they do not depend on what is computed."""

from __future__ import annotations

import ast
import builtins
import operator
import types
from typing import Any, Protocol

import mindspore as ms
from mindspore import nn

__all__ = ["Names", "Unknown", "found", "known", "plain"]

_BUILTINS = {"range", "len", "enumerate", "zip", "reversed", "list", "tuple"}


class Unknown(Exception):
    """What an expression is will be known when it runs."""


class Names(Protocol):
    """The names of a function."""

    def value_of(self, name: str, values: dict[str, Any]) -> Any:
        """What a name stands for, in `values` or outside the function."""


def known(node: ast.AST, names: Names, values: dict[str, Any] | None = None) -> Any:
    """What an expression is, as far as it does not depend on what is computed.

    Args:
        node: The expression.
        names: Of the function it stands in.
        values: Of local variables.

    Raises:
        Unknown: It depends on that.
    """
    values = values or {}
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.value_of(node.id, values)
    if isinstance(node, ast.Attribute):
        owner = known(node.value, names, values)
        if isinstance(owner, (types.ModuleType, nn.Cell)) or node.attr in vars(type(owner)):
            return found(lambda: getattr(owner, node.attr))
    if isinstance(node, (ast.Tuple, ast.List)):
        return [known(each, names, values) for each in node.elts]
    if isinstance(node, ast.Subscript):
        return _item(known(node.value, names, values), known(node.slice, names, values))
    if isinstance(node, (ast.UnaryOp, ast.BoolOp, ast.BinOp, ast.Compare)):
        return _computed(node, names, values)
    return _built_in(node, names, values)


def _item(owner: Any, index: Any) -> Any:
    if isinstance(owner, (list, tuple, dict, nn.CellList, nn.SequentialCell, nn.CellDict)):
        return found(lambda: owner[index])
    raise Unknown


def _built_in(node: ast.AST, names: Names, values: dict[str, Any]) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
        make = names.value_of(node.func.id, values)
        arguments = [known(each, names, values) for each in node.args]
        if make is getattr(builtins, node.func.id) and not node.keywords:
            return found(lambda: make(*arguments))
    raise Unknown


_COMPUTE: dict[Any, Any] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.Add: operator.add, ast.Sub: operator.sub,
    ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_PLAIN = (bool, int, float, str, bytes, type(None), ms.Type)


def _computed(node: Any, names: Names, values: dict[str, Any]) -> Any:
    if isinstance(node, ast.BoolOp):
        ends = isinstance(node.op, ast.Or)
        value: Any = not ends
        for each in node.values:
            value = known(each, names, values)
            if bool(plain(value)) is ends:
                break
        return value
    sides: list[ast.expr]
    kind: Any
    if isinstance(node, ast.UnaryOp):
        sides, kind = [node.operand], type(node.op)
    elif isinstance(node, ast.BinOp):
        sides, kind = [node.left, node.right], type(node.op)
    else:
        sides, kind = [node.left, *node.comparators], type(node.ops[0]) if len(node.ops) == 1 else ast.Compare
    if kind not in _COMPUTE:
        raise Unknown
    values_of = [known(each, names, values) for each in sides]
    if kind not in (ast.Is, ast.IsNot):
        values_of = [plain(each) for each in values_of]
    return found(lambda: _COMPUTE[kind](*values_of))


def plain(value: Any) -> Any:
    """Itself: with anything but numbers, texts and lists of those the code of somebody else would run."""
    if isinstance(value, _PLAIN) or (isinstance(value, (tuple, list)) and all(isinstance(v, _PLAIN) for v in value)):
        return value
    raise Unknown


def found(find: Any) -> Any:
    """What `find` returns.

    Raises:
        Unknown: It fails.
    """
    try:
        return find()
    except Exception as error:
        raise Unknown from error

"""Calls in the source of a network that a compiled graph records, found and replaced while the compiler reads it.

MindSpore's parser is Python: it hands over the syntax tree of each function that a graph is made of. In the tree of
the user's code each call of a function of `mindspore.ops` or `mindspore.mint`, of a method of Tensor, and each operator
that a tensor may be given to becomes a call of a function of `call_taps`. Functions of the user's own are copied for
each call, so that each call has taps of its own.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import types
from typing import Any

from mindspore import Tensor, nn

from asd.operators.debugger.graph import call_taps
from asd.operators.debugger.graph.call_order import (
    BREAK,
    CONTINUE,
    RETURN,
    Branch,
    CallSite,
    Code,
    Loop,
    of_the_source,
)
from asd.operators.debugger.graph.rounds import rounds_of_comprehension, rounds_of_loop
from asd.operators.debugger.graph.source_values import Unknown, known
from asd.operators.debugger.hooks.apis import ApiHooks, words

__all__ = ["CallSites", "is_user_code"]

_NO_TENSORS = {"shape", "ndim", "dtype", "rank"}
_NO_RESULTS = {"len", "isinstance", "hasattr", "type", "int", "float", "bool", "str"}
_SEVERAL = words("""
    split chunk unbind unstack tensor_split hsplit vsplit dsplit array_split meshgrid topk max min sort median mode
    kthvalue cummax cummin broadcast_tensors unique unique_consecutive var_mean std_mean frexp aminmax svd qr eigh
    slogdet split_with_size
""")  # what may return several tensors
_OF_LISTS = words("concat cat stack hstack vstack dstack column_stack row_stack add_n addn block_diag")
_IN_PLACE = re.compile(r"\.(assign\w*|scatter_\w+|inplace_\w+|index_add|\w*[^_]_)$")
_MOST_ROUNDS = 16  # written out: each costs the compiler as much as what it makes
_OWN_PLACES = ("mindspore.nn.", "mindspore.mint.nn.layer.", "mindspore.experimental.")
_NOT_OURS = ("mindspore.nn.cell", "mindspore.nn.optim", "mindspore.nn.wrap")


def is_user_code(module: str, apis: ApiHooks) -> bool:
    """Whether calls that functions of a module make are calls of the network, not part of such a call."""
    if module.split(".")[0] in ("asd", "numpy", "builtins"):
        return False
    if module in apis.modules:
        return True
    return not module.startswith("mindspore.") or (module.startswith(_OWN_PLACES) and not module.startswith(_NOT_OURS))


class CallSites(ast.NodeTransformer):
    """Replaces the calls in the tree of one function; what it finds goes to `code.events`.

    Args:
        code: The function.
        apis: Say what is recorded, and under which name.

    Attributes:
        names: What the changed source needs to know besides what it knew.
    """

    def __init__(self, code: Code, apis: ApiHooks) -> None:
        self._code, self._apis = code, apis
        self._events = code.events
        self._most = _MOST_ROUNDS
        self.names: dict[str, Any] = {}

    def change(self, function: ast.FunctionDef) -> None:
        """Changes the body of a function."""
        function.body = self._visit_all(function.body)

    def _visit_all(self, nodes: list[Any]) -> list[Any]:
        done = [self.visit(each) for each in nodes]
        return [inner for each in done for inner in (each if isinstance(each, list) else [each])]

    # The order of Python, which is not that of the fields.

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """The value comes before what it is assigned to."""
        node.value = self.visit(node.value)
        node.targets = [self.visit(each) for each in node.targets]
        return node

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.AST]:
        """Written out where its items are known: a graph makes its rounds in any order. Else the items come first."""
        rounds = rounds_of_loop(node, self._known, self._most)
        if rounds is not None:
            return self._visit_rounds(rounds) + self._visit_all(node.orelse)
        over = copy.deepcopy(node.iter)
        node.iter = self.visit(node.iter)
        self._within(node.target, over, node, "body")
        node.orelse = self._visit_all(node.orelse)
        return node

    def _visit_rounds(self, rounds: list[list[Any]]) -> list[Any]:
        outer, self._most = self._most, self._most // max(len(rounds), 1)  # those of a loop inside are multiplied
        done = [inner for each in rounds for inner in self._visit_all(each)]
        self._most = outer
        return done

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> ast.AST:
        """As a loop."""
        items = rounds_of_comprehension(node, self._known, self._most)
        if items is not None:
            kind = ast.List if isinstance(node, ast.ListComp) else ast.Tuple
            whole: ast.AST = _at(kind(self._visit_rounds([[each] for each in items]), ast.Load()), node)
            return whole
        first = node.generators[0]
        over = copy.deepcopy(first.iter)
        first.iter = self.visit(first.iter)
        self._within(first.target, over, node, "elt")
        return node

    visit_GeneratorExp = visit_ListComp  # noqa: N815

    def visit_If(self, node: ast.If | ast.IfExp) -> ast.AST:
        """The test comes first."""
        test = copy.deepcopy(node.test)
        node.test = self.visit(node.test)
        self._events.append(Branch(test, self._inside(node, "body"), self._inside(node, "orelse")))
        return node

    visit_IfExp = visit_If  # noqa: N815

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Nothing comes after it."""
        self.generic_visit(node)
        self._events.append(RETURN)
        return node

    def visit_Break(self, node: ast.Break) -> ast.AST:
        """Nothing of the loop comes after it."""
        self._events.append(BREAK)
        return node

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        """Nothing of the round comes after it."""
        self._events.append(CONTINUE)
        return node

    def _within(self, target: ast.AST, over: ast.AST, node: ast.AST, part: str) -> None:
        self._events.append(Loop(target, over, self._inside(node, part)))

    def _inside(self, node: ast.AST, part: str) -> list[Any]:
        """Visits a part of a node; what it calls."""
        outer, self._events = self._events, []
        value = getattr(node, part)
        setattr(node, part, self._visit_all(value) if isinstance(value, list) else self.visit(value))
        inner, self._events = self._events, outer
        return inner

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function inside the function: its body."""
        self.change(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A method whose result nobody uses changes a list, which the compiler has to see."""
        if isinstance(node.value, ast.Call) and self._label(node.value.func) is None:
            self.generic_visit(node.value)
            return node
        return self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Left as it is."""
        return node

    visit_JoinedStr = visit_Raise = visit_Assert = visit_Lambda  # type: ignore[assignment]  # noqa: N815

    def visit_Call(self, node: ast.Call) -> Any:
        """A call of a function, of a method, or of a module."""
        method = self._method_of_parameter(node.func)
        return self._call(node) if method is None else self._method_site(self._inner(node), node.func, method)

    def _inner(self, node: ast.Call) -> ast.Call:
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]
        return node

    def _call(self, node: ast.Call) -> Any:
        function = node.func
        value = self._known(function)
        text = self._label(function)
        if text is None and self._is_foreign(function, value):
            return node
        original = copy.deepcopy(function)
        if isinstance(function, ast.Attribute):
            function.value = self.visit(function.value)
        elif not isinstance(function, ast.Name):
            node.func = self.visit(function)
        self._inner(node)
        if text is not None:
            return self._call_site(node, text)
        if value is not _UNKNOWN:
            return self._known_call(node, value, original)
        if isinstance(function, ast.Attribute) and not self._is_super(function.value):
            name = self._apis.name_of(Tensor, function.attr)
            if name is not None and not self._is_of_self(function.value):
                return self._method_site(node, function, name)
        self._events.append(original)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """`a + b`."""
        hopeless = self._is_no_tensor(node.left) and self._is_no_tensor(node.right)
        self.generic_visit(node)
        if hopeless or any(self._is_text(each) for each in (node.left, node.right)):
            return node
        return self._operator_site(node, type(node.op).__name__, [node.left, node.right])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """`-a`."""
        hopeless = self._is_no_tensor(node.operand)
        self.generic_visit(node)
        return node if hopeless else self._operator_site(node, type(node.op).__name__, [node.operand])

    def visit_Compare(self, node: ast.Compare) -> Any:
        """`a > b`."""
        sides = [node.left, *node.comparators]
        hopeless = any(self._is_no_tensor(each) and not self._is_number(each) for each in sides)
        hopeless = hopeless or all(self._is_no_tensor(each) for each in sides)
        self.generic_visit(node)
        if hopeless or len(node.ops) > 1:
            return node
        return self._operator_site(node, type(node.ops[0]).__name__, [node.left, node.comparators[0]])

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """`a[0]`."""
        hopeless = self._is_no_tensor(node.value) or self._is_known(node.value) or _has_slice(node.slice)
        self.generic_visit(node)
        if hopeless or not isinstance(node.ctx, ast.Load):
            return node
        return self._operator_site(node, "Subscript", [node.value, node.slice])

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """`a += b`, of which is made `a = a + b`."""
        node.value = self.visit(node.value)
        names = call_taps.OPERATORS.get(type(node.op).__name__)
        if names is None or not isinstance(node.target, ast.Name):
            return node
        left = _at(ast.Name(node.target.id, ast.Load()), node.target)
        value = self._operator_site(left, type(node.op).__name__, [left, node.value], in_place=True)
        return node if value is left else _at(ast.Assign([node.target], value), node)

    def _call_site(self, node: ast.Call, text: str) -> ast.AST:
        site = self._new_site(node, text)
        taps = self._taps(site, node.args, text)
        return self._replace(node, "asd_call", [taps, node.func, *node.args], node.keywords)

    def _method_site(self, node: ast.Call, function: Any, text: str) -> ast.AST:
        site = self._new_site(node, text)
        taps = self._taps(site, [function.value, *node.args], text)
        name = _at(ast.Constant(function.attr), node)
        return self._replace(node, "asd_method", [taps, name, function.value, *node.args], node.keywords)

    def _operator_site(self, node: Any, kind: str, values: list[Any], *, in_place: bool = False) -> Any:
        left, right, operator = call_taps.OPERATORS.get(kind, (None, None, None))
        if in_place and left is not None:
            left = left.replace("__", "__i", 1)
        name = None if left is None else self._apis.name_of(Tensor, left)
        if name is None:
            return node
        site = self._new_site(node, name, f"Tensor.{right}")
        taps = self._taps(site, [] if isinstance(node, ast.Compare) else values, name)  # those have no gradient
        self.names[f"asd_operator_{kind}"] = operator
        operator = _at(ast.Name(f"asd_operator_{kind}", ast.Load()), node)
        return self._replace(node, "asd_unary" if len(values) == 1 else "asd_binary", [taps, operator, *values], [])

    def _known_call(self, node: ast.Call, value: Any, original: ast.AST) -> ast.AST:
        """A function of the user's is copied for this call; of a module nothing is to be done here."""
        function = getattr(value, "__func__", value)
        owner = getattr(value, "__self__", None)
        if getattr(function, "__wrapped_by_jit__", False):
            return self._jit_call(node, function, owner, original)
        plain = isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__")
        own = owner is None or owner is self._code.instance
        if not (plain and own and is_user_code(function.__module__, self._apis)):
            self._events.append(original)
        elif function.__code__ not in self._code.callers:  # else it calls itself
            self._call_copy(node, function, owner)
        return node

    def _jit_call(self, node: ast.Call, function: Any, owner: Any, original: ast.AST) -> ast.AST:
        """A function under `ms.jit` is part of the graph; PyNative records it as one call too."""
        plain = inspect.unwrap(function)
        if owner is not None or function.__name__ == "construct" or plain.__code__ in self._code.callers:
            self._events.append(original)
            return node
        self._call_copy(node, plain, None)
        return self._call_site(node, f"Jit.{plain.__name__}")

    def _call_copy(self, node: ast.Call, function: types.FunctionType, owner: Any) -> None:
        twin = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__,
                                  function.__closure__)  # fmt: skip
        twin.__kwdefaults__, twin.__qualname__, twin.__module__ = (
            function.__kwdefaults__, function.__qualname__, function.__module__
        )  # fmt: skip
        twin.__dict__.update(function.__dict__)
        twin.asd_called_by = self._code  # type: ignore[attr-defined]
        bound = twin if owner is None else types.MethodType(twin, owner)
        name = f"asd_copy_{id(twin)}"
        self.names[name] = bound
        self._events.append(bound)
        node.func = _at(ast.Name(name, ast.Load()), node.func)

    def _new_site(self, node: Any, text: str, other: str = "") -> CallSite:
        first = self._code.function.__code__.co_firstlineno
        site = of_the_source(self._code, text, other, first + getattr(node, "lineno", 1) - 1)
        self._events.append(site)
        return site

    def _taps(self, site: CallSite, values: list[Any], text: str) -> ast.AST:
        inputs: list[int] = []
        for value in values:
            if isinstance(value, ast.Starred):
                break
            items = len(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else 0
            if not items and not inputs and text.rpartition(".")[2] in _OF_LISTS:
                items = call_taps.MOST_ITEMS
            inputs.append(min(items, call_taps.MOST_ITEMS))
        if len(values) == 2 and isinstance(values[0], ast.Name) and ast.dump(values[0]) == ast.dump(values[1]):
            inputs = [0, -1]
        if _IN_PLACE.search(text):
            inputs = []  # they need the Parameter itself, which no identity may stand before
        outputs = call_taps.MOST_ITEMS if text.rpartition(".")[2] in _SEVERAL else 1
        name = f"asd_site_{site.number}"
        self.names[name] = call_taps.new_taps(site.number, inputs, outputs)
        return ast.Name(name, ast.Load())

    def _replace(self, node: Any, name: str, arguments: list[Any], keywords: list[ast.keyword]) -> ast.AST:
        name += "_with_keywords" if keywords else ""
        self.names[name] = call_taps.functions()[name]
        arguments[0] = _at(arguments[0], node)
        call: ast.AST = _at(ast.Call(_at(ast.Name(name, ast.Load()), node), arguments, keywords), node)
        return call

    def _label(self, function: ast.AST) -> str | None:
        """The name of a function that is recorded."""
        if isinstance(function, ast.Attribute):
            owner = self._known(function.value)
            return self._apis.name_of(owner, function.attr) if isinstance(owner, types.ModuleType) else None
        if isinstance(function, ast.Name) and function.id not in self._code.local:
            return self._apis.name_of(self._code.module, function.id)
        return None

    def _method_of_parameter(self, function: ast.AST) -> str | None:
        """The name of `self.weight.astype`, unless it changes the Parameter in place."""
        if not isinstance(function, ast.Attribute) or not isinstance(self._known(function.value), Tensor):
            return None
        name = self._apis.name_of(Tensor, function.attr)
        return None if name is None or _IN_PLACE.search(name) else name

    def _known(self, node: ast.AST) -> Any:
        try:
            return known(node, self._code)
        except Unknown:
            return _UNKNOWN

    def _is_known(self, node: ast.AST) -> bool:
        value = self._known(node)
        return value is not _UNKNOWN and not isinstance(value, Tensor)

    def _is_foreign(self, function: ast.AST, value: Any) -> bool:
        """Whether a call is not MindSpore's: the compiler may hand all of it over to Python."""
        while isinstance(function, ast.Attribute):
            function = function.value
        if value is _UNKNOWN:
            value = self._known(function)
        if value is _UNKNOWN or isinstance(value, (nn.Cell, Tensor)):
            return False
        module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "") or ""
        return module.split(".")[0] == "numpy"

    def _is_no_tensor(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return self._is_no_tensor(node.value) or self._is_known(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in _NO_RESULTS
        if isinstance(node, ast.BinOp):
            return self._is_no_tensor(node.left) and self._is_no_tensor(node.right)
        if isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.JoinedStr)):
            return True
        return (isinstance(node, ast.Attribute) and node.attr in _NO_TENSORS) or self._is_known(node)

    def _is_number(self, node: ast.AST) -> bool:
        return isinstance(self._known(node), (int, float)) and not isinstance(self._known(node), bool)

    def _is_text(self, node: ast.AST) -> bool:
        return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))

    def _is_of_self(self, node: ast.AST) -> bool:
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        return isinstance(node, ast.Name) and self._known(node) is not _UNKNOWN

    @staticmethod
    def _is_super(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


_UNKNOWN = object()


def _has_slice(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Slice) for each in ast.walk(node))  # which can't be an argument


def _at(new: Any, old: ast.AST) -> Any:
    """`new` with the place of `old` in the source, for messages of the compiler."""
    ast.copy_location(new, old)
    for name in ("first_token", "last_token"):
        if hasattr(old, name):
            setattr(new, name, getattr(old, name))
    return new

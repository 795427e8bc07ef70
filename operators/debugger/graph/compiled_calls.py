"""The hook in MindSpore's parser by which calls in a compiled graph are recorded, and the gradients of parameters.

It is there between `begin` and `end`, while a debugger records, and no longer. A graph that does not compile with taps
is compiled without them. Where the compiler is not known nothing is replaced, and that is said.
"""

from __future__ import annotations

import ast
import copy
import functools
import logging
import types
from collections.abc import Callable, Sequence
from typing import Any

from mindspore import nn

from asd.operators.debugger.graph.call_order import Code, graph_of
from asd.operators.debugger.graph.call_sites import CallSites, is_user_code
from asd.operators.debugger.graph.parameter_gradients import is_optimizer, with_gradients
from asd.operators.debugger.hooks.apis import ApiHooks
from asd.operators.private.compiler import executors, source_parser, unknown

__all__ = ["begin", "end"]

_LOG = logging.getLogger("asd")
_replaced: list[tuple[Any, Any, Any]] = []
_compilers: list[Any] = []
_told: set[str] = set()
_LEFT_OUT = (
    "of compiled graphs modules and the operators they hold are recorded; functions, methods and operators of tensors, "
    "and gradients of parameters are not. PyNative records all"
)


def begin(apis: ApiHooks | None, *, gradients: bool, only: Sequence[nn.Cell] | None = None) -> None:
    """From now on the compiler sees taps in what it reads.

    Args:
        apis: Around the calls that these record.
        gradients: At what optimizers are called with.
        only: Around the calls of these modules alone, and of functions that they call.
    """
    end()
    reason = unknown()
    if reason:
        if reason not in _told:
            _told.add(reason)
            _LOG.warning("%s, so nothing of it is replaced: %s.", reason, _LEFT_OUT)
        return
    parser = source_parser()
    _mend_compilers()
    init, parse = parser.__init__, parser.parse
    _replaced.append((parser, init, parse))

    def keep_function(self: Any, fn: Any, *args: Any, **kwargs: Any) -> None:
        init(self, fn, *args, **kwargs)
        self.asd_function = fn

    def parse_with_taps(self: Any) -> Any:
        tokens, tree = parse(self)
        try:
            if gradients and is_optimizer(getattr(self.asd_function, "__self__", None)):
                return tokens, _with_names(self, *with_gradients(self.fn, self.asd_function.__self__, tree))
            return tokens, tree if apis is None else _with_taps(self, tree, apis, only)
        except Exception as error:  # what can't be read must not end a training
            _LOG.warning("calls in %s are not recorded: %s", self.function_name, error)
            return tokens, tree

    parser.__init__, parser.parse = keep_function, parse_with_taps


def end() -> None:
    """The parser is what it was."""
    while _replaced:
        parser, init, parse = _replaced.pop()
        parser.__init__, parser.parse = init, parse


def _mend_compilers() -> None:
    if _compilers:
        return
    for owner in executors():
        _compilers.append(owner)
        owner.compile = _again_without_taps(owner.compile)


def _again_without_taps(compile_graph: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_graph)
    def compile_in_any_case(*args: Any, **kwargs: Any) -> Any:
        try:
            return compile_graph(*args, **kwargs)
        except Exception as error:
            if not _replaced:
                raise
            end()
            result = compile_graph(*args, **kwargs)  # an error of the network itself comes again
            told = str(error).strip().partition("\n")[0]
            _LOG.warning("a graph does not compile with taps, so calls in it are not recorded: %s", told)
            return result

    return compile_in_any_case


def _with_taps(parser: Any, tree: Any, apis: ApiHooks, only: Sequence[nn.Cell] | None) -> Any:
    function = parser.fn
    if tree is None or not isinstance(function, types.FunctionType) or not is_user_code(function.__module__, apis):
        return tree
    instance = getattr(parser.asd_function, "__self__", None)
    if not isinstance(tree.body[0], ast.FunctionDef) or function.__name__ == "bprop":
        return tree
    caller = getattr(function, "asd_called_by", None)
    if only is not None and caller is None and not any(instance is each for each in only):
        return tree
    graph = graph_of(function, instance)
    inside = getattr(instance, "asd_tap_hook", None) if isinstance(instance, nn.Cell) else None
    if inside is None and caller is not None:
        inside = caller.inside
    tree = copy.deepcopy(tree)
    definition = tree.body[0]
    local = {
        each.id for each in ast.walk(definition) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    }
    local |= {each.arg for each in ast.walk(definition) if isinstance(each, ast.arg)}
    callers = (*(caller.callers if caller is not None else ()), function.__code__)
    code = Code(function, instance, inside, graph, callers, frozenset(local), _choices(definition))
    graph.codes[id(function), id(instance)] = code
    sites = CallSites(code, apis)
    sites.change(definition)
    return _with_names(parser, tree, sites.names)


def _choices(definition: ast.FunctionDef) -> dict[str, list[ast.AST]]:
    """Of each name that is assigned `self.layer`, or one of several, these."""
    found: dict[str, list[ast.AST]] = {}
    for each in ast.walk(definition):
        if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
            layers = [copy.deepcopy(part) for part in _parts(each.value)]
            found.setdefault(each.targets[0].id, []).extend(layers)
    return found


def _parts(value: ast.AST) -> list[ast.AST]:
    if isinstance(value, ast.IfExp):
        return _parts(value.body) + _parts(value.orelse)
    return [value] if isinstance(value, (ast.Attribute, ast.Subscript)) else []


def _with_names(parser: Any, tree: Any, names: dict[str, Any]) -> Any:
    # A namespace of the parser is a tuple of dictionaries that are asked in turn; of a closure it holds its cells.
    cells, *others = parser.closure_namespace.dicts
    new = {name: types.CellType(value) for name, value in names.items()}
    parser.closure_namespace.dicts = ({**cells, **new}, *others)
    return tree

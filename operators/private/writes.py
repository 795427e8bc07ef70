"""What programs leave behind when they write a Parameter: who changed it can be told from a fault of memory.

MindSpore's own counter, `Parameter._version`, knows of `copy_` and the other methods that write in place. It knows
nothing of `ops.assign`, of the scatter operators, of `parameter[i] = x`, and of what a compiled graph writes. These are
noted here, as soon as somebody asks for it.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from mindspore import Parameter, nn
from mindspore.ops import operations as P  # noqa: N812
from mindspore.train import mind_ir_pb2

from asd.operators.private.compiler import compiled_graph, executors

__all__ = ["tell_before_graphs", "watch_writes", "writes_to", "written_besides"]

Told = Callable[[nn.Cell | None], None]
_PLAIN = re.compile(r"(Assign(Add|Sub)?|Scatter\w*(Update|Add|Sub|Mul|Div|Max|Min)|CopyWithSlice|Inplace\w+|IndexAdd)$")
"""Operators that write their first argument, and that no optimizer needs more than once for a weight."""
_OPTIMIZING = re.compile(r"Adam|Apply|Momentum|SGD|AdaFactor|Lamb|Ftrl|RMSProp|Adagrad")
_GATE = b"asd_gate"
_notes: Counter[int] = Counter()
_waiting: list[weakref.WeakMethod[Told]] = []
_patched = False


def watch_writes() -> None:
    """From now on what writes a Parameter is noted; calling it does what it did."""
    global _patched
    if _patched:
        return
    _patched = True
    for name in dir(P):
        kind = getattr(P, name)
        if isinstance(kind, type) and _PLAIN.match(name):
            setattr(kind, "__call__", _noting_operator(kind.__call__))  # noqa: B010 - mypy knows methods as fixed
    setattr(Parameter, "__setitem__", _noting_item(Parameter.__setitem__))  # noqa: B010
    functions, cells = executors()
    setattr(functions, "__call__", _telling(functions.__call__, of_cells=False))  # noqa: B010
    cells.run = _telling(cells.run, of_cells=True)


def writes_to(parameter: Parameter) -> Hashable:
    """What changes with each operator that writes it in place; waits for none of them."""
    return getattr(parameter, "_version", 0), _notes[id(parameter)]


def tell_before_graphs(method: Told) -> None:
    """Calls a method of an object before each compiled graph that runs, as long as the object lives.

    Args:
        method: Gets the cell whose graph it is; None for a jitted function.
    """
    _waiting[:] = [each for each in _waiting if each() is not None]
    _waiting.append(weakref.WeakMethod(method))


def written_besides(phases: Iterable[str]) -> set[str]:
    """Names of the Parameters that compiled graphs write besides what a guarded optimizer does.

    An optimizer that writes by `Assign` does so once a Parameter; what is written twice, or by an `Assign` beside an
    optimizer's own operator, the network writes as well. So does a graph without a guard.
    """
    found: set[str] = set()
    for phase in phases:
        plain, optimizing = Counter[str](), set[str]()
        graph = compiled_graph(phase)
        if graph:
            model = mind_ir_pb2.ModelProto()
            model.ParseFromString(graph)
            for part in (model.graph, *model.functions):
                for node in part.node:
                    _note_node(node, plain, optimizing)
        is_guarded = _GATE in graph
        found |= {name for name, count in plain.items() if count > 1 or name in optimizing or not is_guarded}
        found |= set() if is_guarded else optimizing
    return found


def _note_node(node: Any, plain: Counter[str], optimizing: set[str]) -> None:
    operator = node.op_type.removeprefix("REF::").partition(":")[0]
    names = [name.rpartition(":")[2] for name in node.input]
    if _PLAIN.match(operator):
        plain.update(names[:1])
    elif _OPTIMIZING.search(operator):
        optimizing.update(names[:4])


def _noting_operator(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Parameter):
            _notes[id(args[0])] += 1
        return call(self, *args, **kwargs)

    return noted


def _noting_item(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def noted(self: Parameter, *args: Any) -> Any:
        _notes[id(self)] += 1
        return write(self, *args)

    return noted


def _telling(run: Callable[..., Any], *, of_cells: bool) -> Callable[..., Any]:
    @functools.wraps(run)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        for each in _waiting:
            if method := each():
                method(args[0] if of_cells else None)
        return run(self, *args, **kwargs)

    return told

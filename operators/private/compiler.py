"""MindSpore's compiler and what it made, under the names of 2.9 and 2.10."""

import contextlib
from typing import Any

from mindspore.common import api as pynative_api
from mindspore.ops.composite import base

try:
    from mindspore.graph import api  # since 2.9
except ImportError:
    api = pynative_api


def executors() -> tuple[Any, Any]:
    """Returns the classes that compile and run jitted functions, and cells."""
    return api._JitExecutor, api._CellGraphExecutor


def gradient_functions() -> tuple[Any, Any]:
    """Returns the classes of gradient functions: `GradOperation`, and that of `grad` and `value_and_grad`."""
    return base.GradOperation, base._Grad


def graph_compilers() -> tuple[Any, Any]:
    """Returns the classes whose `compile` is called for jitted functions, and cells, that are not compiled yet."""
    return api.JitExecutor_, api.GraphExecutor_


def compiled_functions() -> frozenset[str]:
    """Returns the jitted functions that are compiled by now."""
    return frozenset(api.ms_compile_cache)


def compiled_graph(phase: str) -> bytes:
    """Returns the compiled graph in MindSpore's format MindIR; empty where it was freed."""
    for executor in (api._cell_graph_executor._graph_executor, api.JitExecutor_.get_instance()):
        with contextlib.suppress(RuntimeError):  # the graph is the other's
            if executor.has_compiled(phase):
                return bytes(executor.get_func_graph_proto(phase, "mind_ir", False))
    return b""


def clear_pynative() -> None:
    """Ends a pass of PyNative that failed: it would be left in the middle, and the next operator would pay for it."""
    pynative_api._pynative_executor.clear_res()

"""MindSpore's compiler and what it made, under the names of 2.9 and 2.10."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any

import mindspore as ms
from mindspore.common import api as pynative_api

try:
    from mindspore.graph import api  # since 2.9
except ImportError:
    api = pynative_api

__all__ = [
    "clear_pynative",
    "compiled_functions",
    "compiled_graph",
    "executors",
    "source_parser",
    "unknown",
    "wait_for_pynative",
]

_OLDEST, _NEWEST = (2, 7), (2, 10)
_PARSERS = ("mindspore.graph._parse.parser", "mindspore._extends.parse.parser")  # it moved in 2.9


def executors() -> tuple[Any, Any]:
    """The classes that compile and run jitted functions, and cells."""
    return api._JitExecutor, api._CellGraphExecutor


def source_parser() -> Any:
    """The class that reads the source of what is compiled; None where this MindSpore has none."""
    return next((sys.modules[name].Parser for name in _PARSERS if hasattr(sys.modules.get(name), "Parser")), None)


def unknown() -> str:
    """Why nothing of the compiler is to be replaced here: its version is another one, or it is built otherwise.

    Returns:
        The reason in words, empty where the compiler is known.
    """
    oldest, newest = (".".join(map(str, each)) for each in (_OLDEST, _NEWEST))
    found = re.match(r"(\d+)\.(\d+)", ms.__version__)
    if found is None or not _OLDEST <= tuple(map(int, found.groups())) <= _NEWEST:
        return f"the compiler of MindSpore {ms.__version__} is not known, that of {oldest} to {newest} is"
    if source_parser() is None:
        return f"MindSpore {ms.__version__} has no parser in Python"
    return ""


def compiled_functions() -> frozenset[str]:
    """The jitted functions that are compiled by now."""
    return frozenset(api.ms_compile_cache)


def compiled_graph(phase: str) -> bytes:
    """The compiled graph in MindSpore's format MindIR; empty where it was freed."""
    for executor in (api._cell_graph_executor._graph_executor, api.JitExecutor_.get_instance()):
        with contextlib.suppress(RuntimeError):  # the graph is the other's
            if executor.has_compiled(phase):
                return bytes(executor.get_func_graph_proto(phase, "mind_ir", False))
    return b""


def clear_pynative() -> None:
    """Ends a pass of PyNative that failed: it would be left in the middle, and the next operator would pay for it."""
    pynative_api._pynative_executor.clear_res()


def wait_for_pynative() -> None:
    """Waits until all that PyNative began is computed, graphs among it, whatever these return.

    Raises:
        Exception: What MindSpore raises when some of it failed.
    """
    pynative_api._pynative_executor.sync()

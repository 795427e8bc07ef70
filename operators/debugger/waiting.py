"""Waiting for a compiled graph: it runs on its own, and reading an output of it is what waits for all of it."""

from __future__ import annotations

import functools
import sys
from typing import Any

from mindspore import Tensor

from asd.operators.debugger.values import leaves

__all__ = ["keep_outputs", "wait"]

_outputs: list[Any] = []
_keeping: list[bool] = [False]
_replaced: list[type] = []


def keep_outputs(keep: bool) -> None:  # noqa: FBT001 - a switch
    """From now on the output of every compiled graph that is run is kept until `wait`, or no more."""
    _keeping[0] = keep
    if _replaced:
        return
    runner = sys.modules.get("mindspore.graph.api") or sys.modules["mindspore.common.api"]  # it moved in 2.9
    for owner in (runner._JitExecutor, runner._CellGraphExecutor):
        _replaced.append(owner)
        owner.__call__ = _keeping_its_output(owner.__call__)


def wait() -> None:
    """Waits until the graphs whose outputs were kept are computed.

    Raises:
        Exception: What MindSpore raises when one of them failed.
    """
    kept, _outputs[:] = list(_outputs), []
    for output in kept:
        for _, leaf in leaves(output):
            if isinstance(leaf, Tensor):
                leaf.asnumpy()
                break


def _keeping_its_output(original: Any) -> Any:
    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        if _keeping[0]:
            _outputs.append(output)
        return output

    return run

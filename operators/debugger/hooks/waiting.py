"""Waiting for a compiled graph: it runs on its own, and reading an output of it is what waits for all of it.

A graph that PyNative runs, a function under `ms.jit`, is also a call that a session may record as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mindspore import Tensor, nn

from asd.operators.debugger.hooks.current import eager_session
from asd.operators.debugger.hooks.session import Label
from asd.operators.debugger.record.values import leaves
from asd.operators.private.compiler import executors, wait_for_pynative

__all__ = ["is_due", "keep_outputs", "wait"]

_outputs: list[Any] = []
_keeping: list[bool] = [False]
_around: list[Callable[[], None]] = [lambda: None, lambda: None]
_replaced: list[type] = []
_NAMELESS = "construct"  # of a module, which is recorded as one


def keep_outputs(
    keep: bool,  # noqa: FBT001 - a switch
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """From now on the output of every compiled graph that is run is kept until `wait`, or no more.

    Args:
        keep: Whether it is.
        before: Called before each graph.
        after: Called after each was begun; what either raises reaches the caller of the graph.
    """
    _keeping[0], _around[:] = keep, [before, after]
    if _replaced:
        return
    for owner in executors():
        _replaced.append(owner)
        owner.__call__ = _keeping_its_output(owner.__call__)


def is_due() -> bool:
    """Whether a graph was run since the last `wait`."""
    return bool(_outputs)


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
    if kept:  # the graph of an optimizer returns no tensor
        wait_for_pynative()


def _keeping_its_output(original: Any) -> Any:
    @functools.wraps(original)
    def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
        if not _keeping[0]:
            return original(executor, *args, **kwargs)

        def graph(*args: Any, **kwargs: Any) -> Any:
            before, after = _around
            before()
            output = original(executor, *args, **kwargs)
            _outputs.append(output)
            after()
            return output

        session = eager_session()
        name = getattr(getattr(executor, "fn", None), "__name__", _NAMELESS)
        if session is None or not session.config.apis or name == _NAMELESS or (args and isinstance(args[0], nn.Cell)):
            return graph(*args, **kwargs)
        return session.call(Label(f"Jit.{name}", module=False, counted=f"Jit.{name}"), graph, args, kwargs)

    return run

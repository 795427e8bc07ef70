"""Compiles a network without checks on its layers, and reports it, where MindSpore cannot compile it with them."""

from collections.abc import Callable
from typing import Any

from asd.operators.gate.tap import living_taps
from asd.operators.private import patches
from asd.operators.private.boundary import report, shielded
from asd.operators.private.compiler import graph_compilers

_LEFT_OUT = "MindSpore can't compile this network with checks on its layers, so their gradients are not checked there"


@shielded
def compile_without_what_fails() -> None:
    """Retries every failed compilation without the taps, until `disable`."""
    for kind in graph_compilers():
        patches.wrap(kind, "compile", _compile, "fallback")


def _compile(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return original(*args, **kwargs)
    except Exception as error:
        taps = [tap for tap in living_taps() if tap.enable_check]
        for tap in taps:
            tap.enable_check = False
        try:
            compiled = original(*args, **kwargs)
        except Exception:
            # It does not compile without our checks either: the user's own code is wrong.
            raise error from None
        finally:
            for tap in taps:
                tap.enable_check = True
        if taps:  # else it is MindSpore's compiler, which at random fails and then does not
            reason = str(error).strip() or type(error).__name__
            report(f"{_LEFT_OUT}: {reason.splitlines()[0]}")
        return compiled

"""Compiles a network without checks on its layers, and reports it, where MindSpore cannot compile it with them."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

from mindspore import nn

from asd.operators.gate.tap import living_taps
from asd.operators.private import patches
from asd.operators.private.boundary import report, shielded
from asd.operators.private.compiler import graph_compilers
from asd.operators.private.mixed_precision import type_of_holder

_LEFT_OUT = "MindSpore can't compile this network with checks on its layers, so their gradients are not checked there"

_operators: weakref.WeakSet[Any] = weakref.WeakSet()


def prepare_compilations(*operators: Any) -> None:
    """Has each compilation look for the cells of living check operators, and of `operators`, until `disable`."""
    _operators.update(operators)
    if _operators or living_taps():
        compile_without_what_fails()


@shielded
def _set_types() -> None:
    """Sets the type of Parameters of check operators by the cells that hold them: no monitor may know their network."""
    own = {id(each) for each in list(_operators)}
    for cell in [each for each in gc.get_objects() if own and issubclass(type(each), nn.Cell)]:
        for operator in [each for each in vars(cell).values() if id(each) in own]:
            operator.parameter_type = getattr(operator, "check_op", operator).parameter_type = type_of_holder(cell)


@shielded
def compile_without_what_fails() -> None:
    """Retries every failed compilation without the taps, until `disable`."""
    for kind in graph_compilers():
        patches.wrap(kind, "compile", _compile, "fallback")


def _compile(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    _set_types()
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
            report(f"{_LEFT_OUT}: {(str(error).strip() or type(error).__name__).splitlines()[0]}")
        return compiled

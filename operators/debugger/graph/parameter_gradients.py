"""Gradients of parameters in a compiled graph: what its optimizer is called with."""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mindspore import Parameter, Tensor, nn
from mindspore.experimental.optim import Optimizer
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops.composite.base import Map

from asd.operators.debugger.hooks.cells import Hook, add_hook, hooks
from asd.operators.debugger.hooks.graph_taps import GRADIENT_OF_PARAMETER, NOT_NESTED, delivery_of
from asd.operators.private.cells import own_parameters

__all__ = ["ParameterHook", "is_optimizer", "with_gradients"]

_NOBODY = -1


@dataclass(frozen=True)
class ParameterHook:
    """A parameter of a hooked module.

    Attributes:
        number: Of its tap.
        name: In its module.
        owner: The hook of that.
    """

    number: int
    name: str
    owner: Hook

    def entry(self, call: int) -> str:
        """The entry that has its gradient."""
        return self.owner.label.name("parameters_grad", call)

    def above(self) -> Iterator[str]:
        """The backward calls around that."""
        around: Hook | None = self.owner
        while around is not None:
            yield around.name("backward", 0)
            around = around.inside


def is_optimizer(value: Any) -> bool:
    """Whether a module is called with the gradients of its `parameters`."""
    return isinstance(value, (nn.Optimizer, Optimizer))


def with_gradients(function: Any, optimizer: nn.Cell, tree: Any) -> tuple[Any, dict[str, Any]]:
    """The source of an optimizer's `construct`, which first delivers its gradients.

    Args:
        function: That is parsed.
        optimizer: Whose method it is.
        tree: What it was parsed to.

    Returns:
        The changed copy of `tree`, or itself, and what it needs to know.
    """
    definition = tree.body[0]
    outermost = next((vars(base)["construct"] for base in _own(type(optimizer)) if "construct" in vars(base)), None)
    code = getattr(function, "__code__", None)
    if code is None or code is not getattr(_unwrapped(outermost), "__code__", None) or len(definition.args.args) < 2:
        return tree, {}
    numbers = _numbers_of(tuple(optimizer.parameters))
    if all(number == _NOBODY for number in numbers):
        return tree, {}
    tree = copy.deepcopy(tree)
    definition = tree.body[0]
    argument = definition.args.args[1].arg
    statement = ast.parse(f"{argument} = asd_gradients(asd_numbers, {argument})").body[0]
    first = definition.body[0]
    for node in ast.walk(statement):
        ast.copy_location(node, first)
        node.first_token, node.last_token = first.first_token, first.last_token  # type: ignore[attr-defined]
    definition.body.insert(0, statement)
    return tree, {"asd_gradients": _gradients(), "asd_numbers": numbers}


def _own(kind: type) -> list[type]:
    """The classes of an optimizer that are not made by this package, from its own on."""
    return [base for base in kind.__mro__ if not base.__module__.startswith("asd.")]


def _unwrapped(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _numbers_of(parameters: tuple[Parameter, ...]) -> tuple[int, ...]:
    owners: dict[int, tuple[Hook, str]] = {}
    for hook in list(hooks()):
        if isinstance(hook, Hook) and hook.label.module:
            for name, parameter in own_parameters(hook.cell).items():
                if parameter is not None:
                    owners.setdefault(id(parameter), (hook, name))
    return tuple(_number_of(*owners[id(each)]) if id(each) in owners else _NOBODY for each in parameters)


def _number_of(owner: Hook, name: str) -> int:
    return add_hook(lambda number: ParameterHook(number, name, owner)).number  # type: ignore[no-any-return]


@functools.cache
def _gradients() -> Any:
    deliver, each = delivery_of(), Map()

    def look(number, gradient):
        if number >= 0 and isinstance(gradient, Tensor):
            return F.depend(gradient, deliver(gradient, number, GRADIENT_OF_PARAMETER, 0, NOT_NESTED))
        return gradient

    def look_at_all(numbers, gradients):
        if len(numbers) == len(gradients):
            return each(look, numbers, gradients)
        return gradients

    return look_at_all

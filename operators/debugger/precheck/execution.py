"""Runs a call, forward and backward, and returns its results as arrays."""

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import Tensor, ops

from asd.dumps.precheck.calls import leaves
from asd.operators.debugger.precheck.arguments import FLOATING, NotCheckable, from_tensor, mapped
from asd.operators.debugger.precheck.inputs import Value
from asd.operators.private.compiler import clear_pynative

Place = tuple[Any, ...]
Convert = Callable[[Any], Any]


def call_forward(function: Callable[..., Any], args: Any, kwargs: Any, convert: Convert) -> dict[Place, Value]:
    """Runs the call and returns its outputs by their places.

    Args:
        function: Function to call.
        args: Its arguments with a `Value` for each tensor.
        kwargs: Its keyword arguments.
        convert: Makes a tensor from a `Value`.
    """
    try:
        output = function(*mapped(args, convert), **mapped(kwargs, convert))
        return {place: from_tensor(leaf) for place, leaf in leaves(_outputs(output)) if isinstance(leaf, Tensor)}
    except NotCheckable:
        raise
    except Exception as error:
        raise _refused(error) from None


def call_backward(
    function: Callable[..., Any], args: Any, kwargs: Any, convert: Convert, gradients: dict[Place, Value]
) -> dict[Place, Value]:
    """Runs a call and its backward pass; returns the gradients of floating-point arguments by their places.

    Args:
        function: Function to call.
        args: Its arguments with a `Value` for each tensor.
        kwargs: Its keyword arguments.
        convert: Makes a tensor from a `Value`.
        gradients: Gradients of the outputs, by their places.
    """
    places = [place for place, leaf in leaves(args) if isinstance(leaf, Value) and leaf.dtype in FLOATING]
    wanted = list(gradients)
    known = mapped(kwargs, convert)
    converted = mapped(args, convert)

    def run(*tensors: Any) -> Any:
        given = converted
        for place, tensor in zip(places, tensors, strict=True):
            given = _replaced(given, place, tensor)
        outputs = dict(leaves(_outputs(function(*given, **known))))
        chosen = tuple(outputs[place] for place in wanted)
        return chosen[0] if len(chosen) == 1 else chosen

    inputs = [_at(converted, place) for place in places]
    sens = tuple(convert(value) for value in gradients.values())
    try:
        grad = ops.GradOperation(get_all=True, sens_param=True)(run)
        of_inputs = grad(*inputs, sens[0] if len(sens) == 1 else sens)
        return {place: from_tensor(each) for place, each in zip(places, of_inputs, strict=True)}
    except Exception as error:
        raise _refused(error) from None


def _refused(error: Exception) -> NotCheckable:
    clear_pynative()
    lines = [line for line in str(error).splitlines() if line.strip(" -")]
    return NotCheckable((lines[0] if lines else type(error).__name__).strip().rstrip(".")[:200])


def _outputs(output: Any) -> Any:
    return output if isinstance(output, (tuple, list)) else (output,)


def _at(tree: Any, place: Sequence[Any]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def _replaced(tree: Any, place: Sequence[Any], value: Any) -> Any:
    if not place:
        return value
    if isinstance(tree, dict):
        return {**tree, place[0]: _replaced(tree[place[0]], place[1:], value)}
    return (*tree[: place[0]], _replaced(tree[place[0]], place[1:], value), *tree[place[0] + 1 :])

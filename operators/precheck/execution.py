"""Makes a call, forward and backward, and hands out what came of it as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mindspore import Parameter, Tensor, nn, ops

from asd.dumps.precheck.calls import leaves
from asd.dumps.precheck.inputs import Value
from asd.operators.precheck.arguments import FLOATING, NotCheckable, from_tensor, mapped
from asd.operators.private.cells import own_parameters
from asd.operators.private.compiler import clear_pynative

__all__ = ["Made", "Place", "call_backward", "call_forward"]

Place = tuple[Any, ...]
Convert = Callable[[Any], Any]


class Made(NamedTuple):
    """What one pass gave.

    Attributes:
        values: By place: of an output, of an input, or `("parameters", name)`.
    """

    values: dict[Place, Value]


def call_forward(function: Callable[..., Any], args: Any, kwargs: Any, parameters: dict[str, Any],
                 convert: Convert) -> Made:  # fmt: skip
    """Runs the call.

    Args:
        function: It.
        args: Its arguments with a `Value` for each tensor.
        kwargs: Its keyword arguments.
        parameters: Parameters of a module.
        convert: Makes a tensor of a `Value`.

    Raises:
        NotCheckable: It can't run here.
    """
    _set_parameters(function, parameters, convert)
    try:
        output = function(*mapped(args, convert), **mapped(kwargs, convert))
        return Made({place: from_tensor(leaf) for place, leaf in leaves(_outputs(output)) if isinstance(leaf, Tensor)})
    except NotCheckable:
        raise
    except Exception as error:
        raise _refused(error) from None


def call_backward(function: Callable[..., Any], args: Any, kwargs: Any, parameters: dict[str, Any], convert: Convert,
                  gradients: dict[Place, Value]) -> Made:  # fmt: skip
    """Runs the call and its backward pass.

    Args:
        function: It.
        args: As in `call_forward`; so are the next three.
        kwargs: As above.
        parameters: As above.
        convert: As above.
        gradients: Of the outputs, by their place.

    Returns:
        The gradients of the floating-point arguments and of the parameters of a module.

    Raises:
        NotCheckable: It can't run here.
    """
    _set_parameters(function, parameters, convert)
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

    weights = _weights(function)
    inputs = [_at(converted, place) for place in places]
    sens = tuple(convert(value) for value in gradients.values())
    try:
        if weights:
            grad = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)(run, list(weights.values()))
            of_inputs, of_weights = grad(*inputs, sens[0] if len(sens) == 1 else sens)
        else:
            grad = ops.GradOperation(get_all=True, sens_param=True)(run)
            of_inputs, of_weights = grad(*inputs, sens[0] if len(sens) == 1 else sens), ()
        found = dict(zip(places, of_inputs, strict=True))
        found |= {("parameters", name): each for name, each in zip(weights, of_weights, strict=True)}
        return Made({place: from_tensor(each) for place, each in found.items()})
    except Exception as error:
        raise _refused(error) from None


def _refused(error: Exception) -> NotCheckable:
    clear_pynative()
    lines = [line for line in str(error).splitlines() if line.strip(" -")]
    return NotCheckable((lines[0] if lines else type(error).__name__).strip().rstrip(".")[:200])


def _outputs(output: Any) -> Any:
    return output if isinstance(output, (tuple, list)) else (output,)


def _weights(function: Any) -> dict[str, Parameter]:
    if not isinstance(function, nn.Cell):
        return {}
    return {name: each for name, each in own_parameters(function).items() if each is not None and each.requires_grad}


def _set_parameters(function: Any, parameters: dict[str, Any], convert: Convert) -> None:
    if not isinstance(function, nn.Cell):
        return
    own = {name: each for name, each in own_parameters(function).items() if each is not None}
    if len(list(function.get_parameters())) > len(own):
        raise NotCheckable("the parameters of the modules in it are not with it; the operators in it are checked")
    if set(own) != set(parameters):
        raise NotCheckable(f"the module has the parameters {sorted(own)}, and the dump {sorted(parameters)}")
    for name, value in parameters.items():
        tensor = convert(value)
        if tuple(own[name].shape) != tuple(tensor.shape):
            raise NotCheckable(f"{name} has the shape {own[name].shape}, and that of the dump {tensor.shape}")
        # A Parameter keeps its type, and the reference has another one.
        own_parameters(function)[name] = Parameter(tensor, name=own[name].name, requires_grad=own[name].requires_grad)
    function.set_train(True)


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

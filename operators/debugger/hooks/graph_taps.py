"""Taps for compiled graphs: the tensors that go into a cell and come out of it, forward and backward.

Each tap is a Cell with two faces. The compiler sees `construct`; PyNative calls `__call__`, which does nothing: there
the session records the call itself. An input is not replaced forward: the output is made to wait until the input was
read. A gradient is read by the identity that the checks use too (see `asd.operators.measure.tap`).

Only the C++ library on a CPU can take a tensor out of a running graph. Other devices have MindSpore's TensorDump, which
writes files of its own.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops.composite.base import Map
from mindspore.ops.primitive import constexpr

from asd.operators.measure.tap import InsertGradientOf, kernel_function
from asd.operators.private.backward import bprop_getters

__all__ = [
    "FORWARD_IN",
    "FORWARD_OUT",
    "GRADIENT_IN",
    "GRADIENT_OF_PARAMETER",
    "GRADIENT_OUT",
    "NOT_NESTED",
    "SEVERAL",
    "constants",
    "delivery_of",
    "gradient_tap",
    "is_float_tensor",
    "live",
    "module_site",
    "module_taps",
    "note",
    "operator_tap",
    "place_of",
]

FORWARD_IN, FORWARD_OUT, GRADIENT_IN, GRADIENT_OUT, GRADIENT_OF_PARAMETER = range(5)
"""Of a label: what is seen. GRADIENT_OUT is the gradient of an output, which the backward call gets."""
NOT_NESTED = -1
_MOST_INPUTS = 64  # further ones are not recorded
_MOST_GRADIENTS = 2  # each costs a millisecond to make; further inputs and outputs are recorded forward only


_keywords: list[str] = []
_FIRST_KEYWORD = 1 << 16


def place_of(number: int) -> int | str:
    """Of a label: the place of an argument, or the name of a keyword argument."""
    return number if number < _FIRST_KEYWORD else _keywords[number - _FIRST_KEYWORD]


live: set[int] = set()
"""Numbers of the taps that compiled graphs have: the compiler reads source of which no graph is made, too."""


@constexpr
def _label(tap, what, place, inner):
    if what == FORWARD_OUT:
        live.add(tap)
    if isinstance(place, str):
        if place not in _keywords:
            _keywords.append(place)
        place = _FIRST_KEYWORD + _keywords.index(place)
    return Tensor([tap, what, place, inner], ms.int32)


SEVERAL = object()
"""Instead of an argument that differs from call to call."""
constants: dict[int, dict[tuple[int | str, ...], Any]] = {}
"""By the number of a tap: the arguments that were known to the compiler, by their places."""


@constexpr
def note(tap, place, inner, value):
    """Remembers an argument that no graph computes."""
    path = (place,) if inner == NOT_NESTED else (place, inner)
    known = constants.setdefault(tap, {})
    known[path] = value if repr(known.get(path, value)) == repr(value) else SEVERAL
    return tap


@constexpr
def is_float_tensor(kind):
    """Whether a type is that of a tensor that may have a gradient."""
    return isinstance(kind, ms.TensorType) and kind.element_type() in (ms.float16, ms.float32, ms.float64, ms.bfloat16)


class ModuleSite(NamedTuple):
    """What the taps of one module know.

    Attributes:
        before: The taps of the gradients of its inputs.
        after: Those of its outputs.
        places: Of each input: number, what is seen, place, and the label made of these.
        only: The same of an output that is no tuple.
    """

    before: tuple[InsertGradientOf, ...]
    after: tuple[InsertGradientOf, ...]
    places: tuple[tuple[int, int, int, Tensor], ...]
    only: tuple[int, int, int, Tensor]


def module_site(number: int, inputs: int) -> ModuleSite:
    """The taps of a module.

    Args:
        number: Of the tap.
        inputs: How many arguments it has; the gradients of two at most are looked at, and of two outputs.
    """
    return ModuleSite(
        _gradient_taps(number, GRADIENT_IN, min(inputs, _MOST_GRADIENTS)),
        _gradient_taps(number, GRADIENT_OUT, _MOST_GRADIENTS),
        tuple(_place(number, FORWARD_IN, place) for place in range(_MOST_INPUTS)),
        _place(number, FORWARD_OUT, 0),
    )


def _place(number: int, what: int, place: int) -> tuple[int, int, int, Tensor]:
    return number, what, place, Tensor([number, what, place, NOT_NESTED], ms.int32)


class InputTap(nn.Cell):
    """Hands the inputs of a module on; their gradients are delivered. One serves all modules: each is parsed anew."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)

    def __call__(self, taps, inputs):
        """For PyNative."""
        return inputs

    # No loops and few tuples: each of them costs the compiler much more than these lines.
    def construct(self, taps, inputs):
        """For the compiler."""
        if len(taps) == 0 or len(inputs) == 0:
            return inputs
        if len(taps) == 1 or len(inputs) == 1:
            return (_look(taps[0], inputs[0]), *inputs[1:])
        return (_look(taps[0], inputs[0]), _look(taps[1], inputs[1]), *inputs[2:])


class OutputTap(nn.Cell):
    """Hands the output of a module on after its inputs and the output were delivered; so is its gradient."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.each = Map()
        self.deliver = _delivery_of_module()
        self.deliver_named = _delivery()

    def __call__(self, site, output, inputs, keywords):
        """For PyNative."""
        return output

    # A loop makes several graphs of each of its rounds; what maps makes none.
    def construct(self, site, output, inputs, keywords):
        """For the compiler."""
        read = ()
        if len(inputs) == 1:
            read = self.deliver(site[2][0], inputs[0])
        elif len(inputs) > 0:
            read = self.each(self.deliver, site[2][: len(inputs)], inputs[:_MOST_INPUTS])
        if len(keywords) > 0:
            read = (read, self._read_keywords(site, keywords))  # type: ignore[assignment]
        if isinstance(output, Tensor):
            return _look(site[1][0], F.depend(output, self.deliver(site[3], F.depend(output, read))))
        if isinstance(output, tuple):
            return self._read_outputs(site, output, read)
        return output

    def _read_keywords(self, site, keywords):
        read = ()
        for name in keywords:
            read = (*read, self.deliver_named((site[3][0], FORWARD_IN, name), keywords[name]))  # type: ignore[assignment]
        return read

    def _read_outputs(self, site, output, read):
        for place, value in enumerate(output):
            read = self.deliver_named((site[3][0], FORWARD_OUT, place), F.depend(value, read))
        seen = output[:0]
        for place, value in enumerate(output):
            if isinstance(value, Tensor) and place < len(site[1]):
                seen = (*seen, _look(site[1][place], F.depend(value, read)))
            elif isinstance(value, Tensor):
                seen = (*seen, F.depend(value, read))
            else:
                seen = (*seen, value)
        return seen


@functools.cache
def module_taps() -> tuple[InputTap, OutputTap]:
    """The two cells."""
    return InputTap(), OutputTap()


class OperatorTap(NamedTuple):
    """What an operator gets before and after it, to call in its own `construct`.

    Attributes:
        before: `before(taps, inputs)` is the inputs, whose gradients are delivered.
        after: `after(tap_back, places, only, output, inputs)` is the output when the inputs and it were delivered.
        taps: For `before`.
        tap_back: For `after`.
        places: For `after`.
        only: For `after`.
    """

    before: Any
    after: Any
    taps: tuple[InsertGradientOf, ...]
    tap_back: InsertGradientOf
    places: tuple[tuple[int, int, int], ...]
    only: tuple[int, int, int]


def operator_tap(number: int) -> OperatorTap:
    """The taps of an operator. It is called so often that the compiler is given the least there can be.

    Args:
        number: Of the tap.
    """
    (back,) = _gradient_taps(number, GRADIENT_OUT, 1)
    places = tuple((number, FORWARD_IN, place) for place in range(_MOST_INPUTS))
    taps = _gradient_taps(number, GRADIENT_IN, _MOST_GRADIENTS)
    return OperatorTap(_before, _after(), taps, back, places, (number, FORWARD_OUT, 0))


# Functions, not methods: of a Cell's methods each has graphs of its own.


def _look(tap, value):
    if is_float_tensor(F.typeof(value)):
        return tap(value)
    return value


def _before(taps, inputs):
    if len(inputs) < 2:
        return (_look(taps[0], inputs[0]),) if len(inputs) == 1 else inputs
    return (_look(taps[0], inputs[0]), _look(taps[1], inputs[1]), *inputs[2:])


@functools.cache
def _after():
    deliver, each = _delivery(), Map()

    def after(tap, places, only, output, inputs):
        read = each(deliver, places[: len(inputs)], inputs[:_MOST_INPUTS]) if len(inputs) > 0 else inputs
        if isinstance(output, Tensor):
            return _look(tap, F.depend(output, deliver(only, F.depend(output, read))))
        return several(tap, only, output, read)

    def several(tap, only, output, read):
        if not isinstance(output, tuple):
            return output
        for place, value in enumerate(output):
            read = deliver((only[0], only[1], place), F.depend(value, read))
        seen = (_look(tap, F.depend(output[0], read)),)
        for value in output[1:]:
            seen = (*seen, F.depend(value, read))  # type: ignore[assignment]
        return seen

    return after


@functools.cache
def _delivery():  # noqa: C901 - three functions around two objects
    """A function that delivers the tensors in a value; what it returns stands for that. One serves all taps."""
    deliver = kernel_function("asd_deliver")
    nothing = Tensor([0.0], ms.float32)

    def deliver_value(place, value):
        if isinstance(value, Tensor):
            return deliver(F.stop_gradient(value), _label(place[0], place[1], place[2], NOT_NESTED))
        if isinstance(value, (tuple, list)):
            return deliver_items(place, value)
        if place[1] == FORWARD_IN and F.isconstant(value):
            return (nothing, note(place[0], place[2], NOT_NESTED, value))
        return nothing

    def deliver_items(place, value):
        read = nothing
        for inner, item in enumerate(value):
            if isinstance(item, Tensor):
                label = _label(place[0], place[1], place[2], inner)
                read = F.depend(deliver(F.stop_gradient(item), label), read)
            elif place[1] == FORWARD_IN and F.isconstant(item):
                read = F.depend(read, note(place[0], place[2], inner, item))
        return read

    return deliver_value


@functools.cache
def _delivery_of_module():
    """As `_delivery`, for places that have a label."""
    deliver, other = kernel_function("asd_deliver"), _delivery()

    def deliver_value(place, value):
        if isinstance(value, Tensor):
            return deliver(F.stop_gradient(value), place[3])
        return other(place[:3], value)

    return deliver_value


@functools.cache
def delivery_of() -> Any:
    """A function that delivers one tensor; what it returns stands for that."""
    deliver = kernel_function("asd_deliver")

    def deliver_one(value, tap, what, place, inner):
        return deliver(F.stop_gradient(value), _label(tap, what, place, inner))

    return deliver_one


def _gradient_taps(number: int, what: int, count: int) -> tuple[InsertGradientOf, ...]:
    return tuple(gradient_tap(number, what, place) for place in range(count))


def gradient_tap(number: int, what: int, place: int, inner: int = NOT_NESTED) -> InsertGradientOf:
    """An identity whose gradient is delivered.

    Args:
        number: Of the tap.
        what: `GRADIENT_IN` or `GRADIENT_OUT`.
        place: Of the tensor among the inputs or outputs.
        inner: Its place in a list among those.
    """
    return _GradientTap(kernel_function("asd_deliver"), Tensor([number, what, place, inner], ms.int32))


class _GradientTap(InsertGradientOf):
    """See `gradient_tap`."""

    def __init__(self, deliver: Any, label: Tensor) -> None:
        def look_in_graph(gradient):  # what MindSpore's own backward function calls, in a function under `ms.jit`
            return F.depend(gradient, deliver(gradient, label))

        super().__init__(look_in_graph, _unchanged)
        self.deliver, self.label = deliver, label


_GradientTap.__name__ = InsertGradientOf.__name__  # the compiler knows the primitive by it


@bprop_getters.register(_GradientTap)
def _bprop_of(tap: _GradientTap) -> Any:
    deliver, label = tap.deliver, tap.label

    # A function of the tap's own inside this one is one more graph for the compiler.
    def bprop(x, out, dout):
        return (F.depend(dout, deliver(dout, label)),)

    return bprop


def _unchanged(gradients: tuple[Tensor, ...]) -> Tensor:
    return gradients[0]

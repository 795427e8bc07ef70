"""Taps for compiled graphs: the tensors that go into a cell and come out of it, forward and backward.

Each tap is a Cell with two faces. The compiler sees `construct`; PyNative calls `__call__`, which does nothing: there
the session records the call itself. An input is not replaced forward: the output is made to wait until the input was
read. A gradient is read by the identity that the checks use too (see `asd.operators.tap`).

Only the C++ library on a CPU can take a tensor out of a running graph. Other devices have MindSpore's TensorDump, which
writes files of its own.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops.primitive import constexpr

from asd.operators.tap import InsertGradientOf, kernel_function

__all__ = [
    "FORWARD_IN",
    "FORWARD_OUT",
    "GRADIENT_IN",
    "GRADIENT_OUT",
    "NOT_NESTED",
    "InputTap",
    "OutputTap",
    "place_of",
]

FORWARD_IN, FORWARD_OUT, GRADIENT_IN, GRADIENT_OUT = range(4)
"""Of a label: what is seen. GRADIENT_OUT is the gradient of an output, which the backward call gets."""
NOT_NESTED = -1
_MOST_GRADIENTS = 2  # each costs a millisecond to make; further inputs and outputs are recorded forward only


_keywords: list[str] = []
_FIRST_KEYWORD = 1 << 16


def place_of(number: int) -> int | str:
    """Of a label: the place of an argument, or the name of a keyword argument."""
    return number if number < _FIRST_KEYWORD else _keywords[number - _FIRST_KEYWORD]


@constexpr
def _label(tap, what, place, inner):
    if isinstance(place, str):
        if place not in _keywords:
            _keywords.append(place)
        place = _FIRST_KEYWORD + _keywords.index(place)
    return Tensor([tap, what, place, inner], ms.int32)


@constexpr
def _is_float(dtype):
    return dtype in (ms.float16, ms.float32, ms.float64, ms.bfloat16)


class InputTap(nn.Cell):
    """Hands its inputs on; their gradients are delivered.

    Args:
        number: Of the tap.
        inputs: How many arguments are looked at, at most two.
    """

    def __init__(self, number: int, inputs: int) -> None:
        super().__init__(auto_prefix=False)
        self.taps = _gradient_taps(number, GRADIENT_IN, min(inputs, _MOST_GRADIENTS))

    def __call__(self, *inputs):
        """For PyNative."""
        return inputs

    # No loops and few tuples: each of them costs the compiler much more than these lines.
    def construct(self, *inputs):
        """For the compiler."""
        if len(self.taps) == 0 or len(inputs) == 0:
            return inputs
        if len(self.taps) == 1 or len(inputs) == 1:
            return (self._one(inputs[0], self.taps[0]), *inputs[1:])
        return (self._one(inputs[0], self.taps[0]), self._one(inputs[1], self.taps[1]), *inputs[2:])

    def _one(self, value, tap):
        if isinstance(value, Tensor) and _is_float(F.dtype(value)):
            return tap(value)
        return value


class OutputTap(nn.Cell):
    """Hands the output of a cell on after the cell's inputs and the output were delivered; so is its gradient.

    Args:
        number: Of the tap.
        outputs: How many outputs have their gradient looked at, at most two.
    """

    def __init__(self, number: int, outputs: int = _MOST_GRADIENTS) -> None:
        super().__init__(auto_prefix=False)
        self.number = number
        self.nothing = Tensor([0.0], ms.float32)
        self.deliver = kernel_function("asd_deliver")
        self.taps = _gradient_taps(number, GRADIENT_OUT, outputs)

    def __call__(self, output, inputs, keywords):
        """For PyNative."""
        return output

    def construct(self, output, inputs, keywords):
        """For the compiler."""
        read = self.nothing
        for place, value in enumerate(inputs):
            read = self._read(FORWARD_IN, place, value, read)
        for name in keywords:
            read = self._read(FORWARD_IN, name, keywords[name], read)
        if isinstance(output, Tensor):
            return self._one(output, 0, self._read(FORWARD_OUT, 0, F.depend(output, read), read))
        if isinstance(output, tuple):
            seen = output[:0]
            for place, value in enumerate(output):
                read = self._read(FORWARD_OUT, place, F.depend(value, read), read)
            for place, value in enumerate(output):
                if isinstance(value, Tensor):
                    seen = (*seen, self._one(value, place, read))
                else:
                    seen = (*seen, value)
            return seen
        return output

    def _read(self, what, place, value, before):
        """Delivers `value` after what `before` stands for; the result stands for both."""
        if isinstance(value, Tensor):
            label = _label(self.number, what, place, NOT_NESTED)
            return F.depend(self.deliver(F.stop_gradient(value), label), before)
        if isinstance(value, (tuple, list)):
            for inner, item in enumerate(value):
                if isinstance(item, Tensor):
                    label = _label(self.number, what, place, inner)
                    before = F.depend(self.deliver(F.stop_gradient(item), label), before)
        return before

    def _one(self, value, place, read):
        if place < len(self.taps) and _is_float(F.dtype(value)):
            return self.taps[place](F.depend(value, read))
        return F.depend(value, read)


def _gradient_taps(number: int, what: int, count: int) -> tuple[InsertGradientOf, ...]:
    return tuple(_gradient_tap(number, what, place) for place in range(count))


def _gradient_tap(number: int, what: int, place: int) -> InsertGradientOf:
    deliver = kernel_function("asd_deliver")
    label = Tensor([number, what, place, NOT_NESTED], ms.int32)

    def look_in_graph(gradient):
        return F.depend(gradient, deliver(gradient, label))

    return InsertGradientOf(look_in_graph, _unchanged)


def _unchanged(gradient: Tensor) -> Tensor:
    return gradient

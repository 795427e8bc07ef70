"""Changes a tensor on the device, by its own operators: gather, one operation, and a scatter into a copy.

The host decides before a step whether the fault is active; the device counts the calls and decides which of them it
strikes, so a run of the same step that follows is struck as hardware would be.
"""

import itertools
import weakref
from dataclasses import replace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812
from mindspore.ops.primitive import constexpr

from asd.injection import Change, Fault
from asd.operators.gate.guard_state import write
from asd.operators.gate.tap import InsertGradientOf, hidden
from asd.operators.private.mixed_precision import CheckCell

_CALLS = 4096  # after which the chances of calls repeat themselves
_TYPES = {ms.float16: np.float16, ms.bfloat16: np.float32, ms.float32: np.float32, ms.float64: np.float64}
_LAYOUTS = {ms.float16: (10, 15, 15), ms.bfloat16: (7, 127, 15), ms.float32: (23, 127, 31), ms.float64: (52, 1023, 63)}
"""Bits of the mantissa, bias of the exponent, and the bit of the sign."""
_TOLD = (2, 4)
_POWERS = (64, 32, 16, 8, 4, 2, 1)
_living: weakref.WeakValueDictionary[int, "DeviceFault"] = weakref.WeakValueDictionary()
_numbers = itertools.count()


@constexpr
def _constants(number: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns the constants of a strike for a tensor; Python runs it while the compiler follows the network."""
    return _living[number].constants(shape, dtype)


@constexpr
def _layout(number: int, dtype: Any) -> Any:
    """Returns numbers that the compiler has to know."""
    return _living[number].layout(dtype)


class DeviceFault(CheckCell):
    """Fault of one tensor.

    Args:
        fault: What to change, and in which of the calls while it is active.
        where: Name of the tensor.

    Attributes:
        where: Name of the tensor.
    """

    def __init__(self, fault: Fault, where: str) -> None:
        super().__init__()
        self.where, self._fault, self.number = where, fault, next(_numbers)
        _living[self.number] = self
        self.is_moving, self.operation = fault.chance < 1, fault.operation
        turns = [fault.of_call(call + 1) for call in range(_CALLS)] if self.is_moving else []
        later = [float(fault.duration > 1)] * (_CALLS - 1)
        strikes = [float(each is not None) for each in turns] if turns else [1.0, *later]
        offsets = [each.seed % 65521 if each is not None else 0 for each in turns] or [0] * len(strikes)
        self.strikes, self.offsets = Tensor(strikes, ms.float32), Tensor(offsets, ms.int32)
        self.last, self.one = Tensor(float(len(strikes)), ms.float32), Tensor([1.0], ms.float32)
        # Hidden, as a rerun restores what is the network's own: a fault that is over would strike again.
        counts = {f"asd_{name}_{self.number}": n for name, n in (("armed", 1), ("calls", 1), ("struck", _TOLD))}
        self.state = hidden(
            *(Parameter(np.zeros(n, np.float32), name=name, requires_grad=False) for name, n in counts.items())
        )
        self._at: np.ndarray = np.zeros(0, np.int64)
        self._shape: tuple[int, ...] = ()
        self.add, self.tell = P.AssignAdd(), P.ScatterUpdate()
        self.gather, self.scatter = P.Gather(), P.TensorScatterUpdate()
        self.rest, self.select, self.concat, self.tile = P.FloorMod(), P.Select(), P.Concat(), P.Tile()
        self.sum, self.mul, self.cut, self.floor = P.ReduceSum(), P.Mul(), P.Slice(), P.Floor()

    def __deepcopy__(self, memo: Any) -> "DeviceFault":
        """Returns itself: a copy of a network is struck where the network is."""
        return self

    def constants(self, shape: tuple[int, ...], dtype: Any) -> tuple[Tensor, ...]:
        """Returns indices to write and to read, the operand, and how often the operand's kind of word is repeated."""
        kind, fault = np.dtype(_TYPES[dtype]), self._fault
        if self.operation == "xor":
            fault = replace(fault, amount=self.layout(dtype)[0])
        at, source, operand = fault.plan(shape, kind)
        self._at, self._shape = at, shape
        return Tensor(at.astype(np.int32)), Tensor(source.astype(np.int32)), Tensor(operand.astype(kind), dtype)

    def layout(self, dtype: Any) -> tuple[int, int, int, int]:
        """Returns the bit to flip, and the layout of the type."""
        bit, signs = int(self._fault.amount), _LAYOUTS[dtype][2]
        return bit - 16 if bit > signs == 15 else bit, *_LAYOUTS[dtype]  # the same bit of a shorter exponent

    def construct(self, x):
        """Returns `x`, changed if it is this call's turn."""
        if 0 in x.shape:
            return x
        at, source, operand = _constants(self.number, x.shape, x.dtype)
        armed, calls, struck = self.state()
        flat = F.reshape(x, (-1,))
        call = F.cast(self.rest(F.depend(calls, x) * self.one, self.last), ms.int32)
        turn = self.gather(self.strikes, call, 0) * armed
        counted = self.add(calls, F.depend(armed, call))
        if self.is_moving:
            moves = self.gather(self.offsets, call, 0)
            at, source = self.rest(at + moves, flat.shape[0]), self.rest(source + moves, flat.shape[0])
        before, taken = self.gather(flat, at, 0), self.gather(flat, source, 0)
        if self.operation == "xor":
            spoiled = F.cast(self.flip(taken, *_layout(self.number, x.dtype)), x.dtype)
        elif self.operation == "multiply":
            spoiled = self.mul(taken, operand)
        elif self.operation == "set":
            spoiled = operand
        else:
            spoiled = taken
        is_turn = self.tile(turn > 0, (before.shape[0],))
        values = self.select(is_turn, spoiled, before)
        # inf and nan are as good as any value here: what is told is not computed with.
        differs = F.cast(F.logical_not(F.equal(values, before)), ms.float32)
        first = (self.cut(F.cast(each, ms.float32), (0,), (1,)) for each in (before, values))
        fresh = self.concat((turn, F.reshape(self.sum(differs), (1,)), *first))
        # Row 1 has the last strike; row 0 takes the calls that do not strike. With another use layouts would differ.
        told = self.tell(struck, F.cast(turn, ms.int32), F.reshape(fresh, (1, 4)))
        out = self.scatter(flat, F.reshape(at, (-1, 1)), values)
        return F.reshape(F.depend(F.depend(out, told), counted), x.shape)

    def flip(self, x, bit, mantissa, bias, signs):
        """Returns `x` with a bit flipped, in float32; 0 is the lowest bit.

        By exact arithmetic, for a compiled graph has no view of numbers as integers. A zero gets the value that the bit
        alone has, and what would be NaN is infinite.
        """
        value = F.cast(x, ms.float32)
        if bit == signs:
            return -value
        size = F.abs(value)
        one, nothing = F.ones_like(size), F.zeros_like(size)
        rest, exponent, unit = self.select(size > 0, size, one), nothing, one
        for power in _POWERS:
            is_small = rest < 2.0 ** (1 - power)
            rest = rest * self.select(is_small, one * 2.0**power, one)
            unit = unit * self.select(is_small, one * 2.0**-power, one)
            exponent = exponent - self.select(is_small, one * power, nothing)
        for power in _POWERS:
            is_large = rest >= 2.0**power
            rest = rest * self.select(is_large, one * 2.0**-power, one)
            unit = unit * self.select(is_large, one * 2.0**power, one)
            exponent = exponent + self.select(is_large, one * power, nothing)
        if bit < mantissa:
            least = 2.0 ** (bit - mantissa)
            is_set = self.rest(self.floor(rest * (1 / least)), 2.0) > 0.5
            change = unit * least * self.select(is_set, -one, one)
            flipped = value + self.select(value < 0, -change, change)
            return self.select(size > 0, flipped, one * least * 2.0 ** (1 - bias))
        steps = 2.0 ** (bit - mantissa)
        is_set = self.rest(self.floor((exponent + bias) * (1 / steps)), 2.0) > 0.5
        if steps > 1:
            half = self.select(is_set, one * 2.0 ** (-steps / 2), one * 2.0 ** (steps / 2))
            return self.select(size > 0, value * half * half, one * 2.0 ** (steps - bias))
        return self.select(size > 0, value * self.select(is_set, one * 0.5, one * 2.0), one * 2.0 ** (1 - bias))

    def arm(self, *, active: bool) -> None:
        """Makes the fault active or not, before a step."""
        write(self.state()[0], np.full(1, active, np.float32))

    def told(self, step: int) -> Change | None:
        """Returns the last change since the last call; None if it changed nothing."""
        struck = self.state()[2]
        turn, elements, before, after = struck.asnumpy()[1].tolist()
        if not turn:
            return None
        write(struck, np.zeros(_TOLD, np.float32))
        at = tuple(map(int, np.unravel_index(self._at[0], self._shape))) if self._shape else ()
        return Change(step, self.where, int(elements), at, before, after)


class StruckGradient(CheckCell):
    """Identity whose gradient is struck, in graph mode and PyNative alike."""

    def __init__(self, strike: DeviceFault) -> None:
        super().__init__()

        def in_graph(gradient):
            return strike(gradient)

        self.insert = InsertGradientOf(in_graph)
        self.hook = ops.HookBackward(lambda gradients: strike(gradients[0]))

    def __call__(self, x):
        """Attaches a hook in PyNative."""
        return super().__call__(x) if ms.get_context("mode") == ms.GRAPH_MODE else self.hook(x)

    def construct(self, x):
        """Returns `x`."""
        return self.insert(x)


class StruckOutput(CheckCell):
    """Identity whose result is struck, and whose gradient is unchanged.

    It has no backward pass of its own, which does not compile in a pipeline.
    """

    def __init__(self, strike: DeviceFault) -> None:
        super().__init__()
        self.strike = strike

    def construct(self, x):
        """Returns `x`, struck."""
        kept = F.stop_gradient(x)
        return F.stop_gradient(self.strike(kept)) + (x - kept)

"""Patterns of corruption: changes of single elements, a column, all elements, or a grid of them."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError

Array = np.ndarray[Any, Any]
Random = np.random.Generator


class ElementChange(NamedTuple):
    """Change of some elements of a flat array, as data: every operator that has these can make it."""

    at: Array  # indices of the elements that change
    source: Array  # indices of the elements that their new values are computed from
    operand: Array  # of the operation: one number, or one for each element


class Pattern(NamedTuple):
    """Pattern of corruption of an array.

    Attributes:
        meaning: Description, which ends in the pattern's number.
        operation: Operation on the values: `xor` with their bits, `multiply`, `set`, or `move`, which takes others.
        plan: Returns the change from shape, type, number, indices of the chosen elements, and a random stream.
        is_valid: Returns whether a number is valid for the pattern.
    """

    meaning: str
    operation: str
    plan: Callable[[tuple[int, ...], Any, float, Array, Random], ElementChange]
    is_valid: Callable[[float], bool]

    def spoil(self, array: Array, plan: ElementChange) -> None:
        """Changes an array in place."""
        flat = array.reshape(-1)
        values = flat[plan.source]
        if self.operation == "xor":
            values = (values.view(plan.operand.dtype) ^ plan.operand).view(array.dtype)
        elif self.operation != "move":
            values = values * plan.operand if self.operation == "multiply" else plan.operand
        flat[plan.at] = values


def _is_bit(amount: float) -> bool:
    return amount in range(64)


def _is_count(amount: float) -> bool:
    return amount >= 1 and float(amount).is_integer()


def _anything(amount: float) -> bool:
    del amount
    return True


def amount_is_valid(pattern: str, amount: float) -> bool:
    """Returns whether a number is valid for `pattern`."""
    return SHAPES[pattern].is_valid(amount)


def _indices(shape: tuple[int, ...]) -> Array:
    """Returns the index of each element, as a matrix with rows along the last axis."""
    return np.arange(math.prod(shape)).reshape(-1, shape[-1] if shape else 1)


def _flip(shape: tuple[int, ...], dtype: Any, amount: float, chosen: Array, random: Random) -> ElementChange:
    del shape, random
    if amount >= 8 * dtype.itemsize:
        raise ConfigError("fault flip", int(amount), f"valid for {dtype} is 0 to {8 * dtype.itemsize - 1}")
    return ElementChange(chosen, chosen, np.array([1 << int(amount)], f"u{dtype.itemsize}"))


def _chosen(shape: tuple[int, ...], dtype: Any, amount: float, chosen: Array, random: Random) -> ElementChange:
    del shape, random
    return ElementChange(chosen, chosen, np.full(chosen.size, amount).astype(dtype))


def _all(shape: tuple[int, ...], dtype: Any, amount: float, chosen: Array, random: Random) -> ElementChange:
    del chosen, random
    every = _indices(shape).reshape(-1)
    return ElementChange(every, every, np.full(1, amount).astype(dtype))


def _noise(shape: tuple[int, ...], dtype: Any, amount: float, chosen: Array, random: Random) -> ElementChange:
    every = _all(shape, dtype, amount, chosen, random)
    return every._replace(operand=(1 + amount * random.standard_normal(every.at.size)).astype(dtype))


def _fill(at: Array, dtype: Any, amount: float) -> ElementChange:
    flat = at.reshape(-1)
    return ElementChange(flat, flat, np.full(flat.size, amount).astype(dtype))


def _stick(shape: tuple[int, ...], dtype: Any, amount: float, chosen: Array, random: Random) -> ElementChange:
    del chosen
    rows = _indices(shape)
    return _fill(rows[:, random.integers(rows.shape[1])], dtype, amount)


def _zero(shape: tuple[int, ...], dtype: Any, amount: float, chosen: Array, random: Random) -> ElementChange:
    del chosen
    rows, period = _indices(shape), int(amount)
    top, left = (int(random.integers(min(period, size))) for size in rows.shape)
    return _fill(rows[top::period, left::period], dtype, 0)


def _block(shape: tuple[int, ...], dtype: Any, amount: float, chosen: Array, random: Random) -> ElementChange:
    del chosen
    rows, side = _indices(shape), int(amount)
    top, left = (int(random.integers(max(1, size - side + 1))) for size in rows.shape)
    return _fill(rows[top : top + side, left : left + side], dtype, 0)


def _shift(shape: tuple[int, ...], dtype: Any, amount: float, chosen: Array, random: Random) -> ElementChange:
    del chosen
    rows = _indices(shape)
    row = rows[random.integers(rows.shape[0])]
    return ElementChange(row, np.roll(row, int(amount)), np.zeros(1, dtype))


SHAPES: Mapping[str, Pattern] = MappingProxyType(
    {
        "flip": Pattern("flips the bit with this number in one element, 0 being the lowest", "xor", _flip, _is_bit),
        "scale": Pattern("multiplies one element by this factor", "multiply", _chosen, math.isfinite),
        "set": Pattern("sets one element to this value; inf and nan are valid", "set", _chosen, _anything),
        "stick": Pattern("sets one column, along the last axis, to this value", "set", _stick, _anything),
        "noise": Pattern(
            "multiplies every element by 1 plus noise of this standard deviation", "multiply", _noise, math.isfinite
        ),
        "factor": Pattern("multiplies every element by this factor", "multiply", _all, math.isfinite),
        "zero": Pattern("sets each so many-th element of each so many-th row to 0", "set", _zero, _is_count),
        "block": Pattern("sets a block with sides of so many elements to 0", "set", _block, _is_count),
        "shift": Pattern("shifts one row, along the last axis, by so many elements", "move", _shift, _is_count),
    }
)
"""All patterns by name."""
PATTERNS = {name: pattern.meaning for name, pattern in SHAPES.items()}  # description of each pattern

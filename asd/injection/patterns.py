"""Patterns of corruption: changes of single elements, a column, all elements, or a grid of them."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError

Array = np.ndarray[Any, Any]
Random = np.random.Generator


class Pattern(NamedTuple):
    """Pattern of corruption of an array.

    Attributes:
        meaning: Description, which ends in the pattern's number.
        spoil: Changes in place: the array, the number, the indices of the chosen elements, and a random stream.
        is_valid: Returns whether a number is valid for the pattern.
    """

    meaning: str
    spoil: Callable[[Array, float, Array, Random], None]
    is_valid: Callable[[float], bool]


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


def _rows(array: Array) -> Array:
    """Returns the array as a matrix; writing to the matrix changes the array."""
    return array.reshape(-1, array.shape[-1] if array.ndim else 1)


def _bits(array: Array) -> Array:
    return array.reshape(-1).view(f"u{array.dtype.itemsize}")


def _flip(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del random
    bits = _bits(array)
    if amount >= 8 * array.dtype.itemsize:
        raise ConfigError("fault flip", int(amount), f"valid for {array.dtype} is 0 to {8 * array.dtype.itemsize - 1}")
    bits[chosen] ^= bits.dtype.type(1 << int(amount))


def _scale(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del random
    array.reshape(-1)[chosen] *= array.dtype.type(amount)


def _set(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del random
    array.reshape(-1)[chosen] = amount


def _factor(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen, random
    array *= array.dtype.type(amount)


def _noise(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    flat = array.reshape(-1)
    flat *= (1 + amount * random.standard_normal(flat.size)).astype(array.dtype)


def _stick(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    rows = _rows(array)
    rows[:, random.integers(rows.shape[1])] = amount


def _zero(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    rows, period = _rows(array), int(amount)
    top, left = (int(random.integers(min(period, size))) for size in rows.shape)
    rows[top::period, left::period] = 0


SHAPES: Mapping[str, Pattern] = MappingProxyType(
    {
        "flip": Pattern("flips the bit with this number in one element, 0 being the lowest", _flip, _is_bit),
        "scale": Pattern("multiplies one element by this factor", _scale, math.isfinite),
        "set": Pattern("sets one element to this value; inf and nan are valid", _set, _anything),
        "stick": Pattern("sets one column, along the last axis, to this value", _stick, _anything),
        "noise": Pattern("multiplies every element by 1 plus noise of this standard deviation", _noise, math.isfinite),
        "factor": Pattern("multiplies every element by this factor", _factor, math.isfinite),
        "zero": Pattern("sets each so many-th element of each so many-th row to 0", _zero, _is_count),
    }
)
"""All patterns by name."""
PATTERNS = {name: pattern.meaning for name, pattern in SHAPES.items()}  # description of each pattern

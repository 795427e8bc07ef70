"""What a fault does to an array: single elements, and the shapes that broken matrix units and memories leave.

Sources of the shapes: zeroed values, periods of 2 to 16 and low bits from Tung et al., gate-level faults of a GPU; runs
of four, periodic in both axes, near zero, of the other sign or infinite from AEGIS (OSDI'26), a matrix unit; a wrong
offset in a range of values from SDCHunter (OSDI'26).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError

__all__ = ["PATTERNS", "SHAPES", "Pattern", "amount_is_valid"]

Array = np.ndarray[Any, Any]
Random = np.random.Generator


class Pattern(NamedTuple):
    """One way to spoil an array.

    Attributes:
        meaning: What it does, with its number.
        spoil: Does it in place: the array, its number, the numbers of the chosen elements, and a random stream.
        is_valid: Whether a number can be its own.
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
    """Whether a number can be that of `pattern`."""
    return SHAPES[pattern].is_valid(amount)


def _rows(array: Array) -> Array:
    """As a matrix, of the same memory."""
    return array.reshape(-1, array.shape[-1] if array.ndim else 1)


def _bits(array: Array) -> Array:
    return array.reshape(-1).view(f"u{array.dtype.itemsize}")


def _flip(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del random
    bits = _bits(array)
    if amount >= 8 * array.dtype.itemsize:
        raise ConfigError("fault flip", int(amount), f"valid for {array.dtype} is 0 to {8 * array.dtype.itemsize - 1}")
    bits[chosen] ^= bits.dtype.type(1 << int(amount))


def _low_bit(array: Array, amount: float, chosen: Array, random: Random) -> None:
    bits = _bits(array)
    lowest = random.integers(min(int(amount), 8 * array.dtype.itemsize), size=len(chosen))
    bits[chosen] ^= (np.uint64(1) << lowest.astype(np.uint64)).astype(bits.dtype)


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


def _offset(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen, random
    magnitudes = np.abs(array.astype(np.float64))
    mean = float(magnitudes.mean())
    hit = (magnitudes >= mean) & (magnitudes < 2 * mean)
    array[hit] = (array[hit].astype(np.float64) + amount * mean).astype(array.dtype)


def _stick(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    rows = _rows(array)
    rows[:, random.integers(rows.shape[1])] = amount


def _copy_row(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    rows = _rows(array)
    source, *others = random.permutation(len(rows))[: int(amount) + 1]
    rows[others] = rows[source]


def _zero(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    rows, period = _rows(array), int(amount)
    top, left = (int(random.integers(min(period, size))) for size in rows.shape)
    rows[top::period, left::period] = 0


def _zero_columns(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    rows, period = _rows(array), int(amount)
    rows[:, int(random.integers(min(period, rows.shape[1]))) :: period] = 0


def _zero_tile(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    rows, side = _rows(array), int(amount)
    top, left = (int(random.integers(max(1, size - side + 1))) for size in rows.shape)
    rows[top : top + side, left : left + side] = 0


def _runs(array: Array, amount: float, chosen: Array, random: Random) -> None:
    del chosen
    rows, period = _rows(array), int(amount)
    top = int(random.integers(min(period, rows.shape[0])))
    columns = np.arange(rows.shape[1])
    first = int(random.integers(min(period, rows.shape[1])))
    hit = np.ix_(np.arange(top, rows.shape[0], period), (columns - first) % period < _RUN)
    kind = int(random.integers(3))
    if kind == 0:
        rows[hit] *= array.dtype.type(_NEAR_ZERO)
    elif kind == 1:
        rows[hit] *= array.dtype.type(_FLIPPED)
    else:
        rows[hit] = np.inf


_RUN = 4
_NEAR_ZERO = 2.0**-14
_FLIPPED = -64.0
SHAPES: Mapping[str, Pattern] = MappingProxyType(
    {
        "flip": Pattern("flips the bit with this number in one element, 0 being the lowest", _flip, _is_bit),
        "low_bit": Pattern("flips one of so many lowest bits in one element", _low_bit, _is_count),
        "scale": Pattern("multiplies one element by this factor", _scale, math.isfinite),
        "set": Pattern("sets one element to this value; inf and nan are valid", _set, _anything),
        "stick": Pattern("sets one column, along the last axis, to this value", _stick, _anything),
        "copy_row": Pattern("copies one row over this many others", _copy_row, _is_count),
        "noise": Pattern("multiplies every element by 1 plus noise of this standard deviation", _noise, math.isfinite),
        "factor": Pattern("multiplies every element by this factor", _factor, math.isfinite),
        "offset": Pattern(
            "adds so many times the mean magnitude to what lies between that mean and twice it", _offset, math.isfinite
        ),
        "zero": Pattern("sets each so many-th element of each so many-th row to 0", _zero, _is_count),
        "zero_columns": Pattern("sets each so many-th column to 0", _zero_columns, _is_count),
        "zero_tile": Pattern("sets a tile with so many rows and columns to 0", _zero_tile, _is_count),
        "runs": Pattern(
            "spoils four elements out of so many, in each so many-th row: near zero, of the other sign, or inf",
            _runs, _is_count,
        ),
    }
)  # fmt: skip
"""All patterns by name."""
PATTERNS = {name: pattern.meaning for name, pattern in SHAPES.items()}
"""What each of them does, in words."""

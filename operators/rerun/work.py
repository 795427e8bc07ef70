"""A known-answer test: one operator on numbers of the live weights, and its answer in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

SHAPE = (32, 64)
Array = Any
_EXACT, _LEAST = 4.0, 1e-30
"""Last places that one operation may be off; and what denormal numbers may, which some devices take for 0."""
_GROSS = 2.0**17  # last places, a 64th of a number: no reduced precision is so far off


class Work(NamedTuple):
    """Known-answer test of one operator.

    Attributes:
        name: Name of the operator.
        operands: Letters, each a key of `operands_of`.
        compute: The operator; it returns float32.
        answer: The same function in float64, of as many operands.
        places: Last places of float32 by which a result may be off.
        size: Magnitude to which `places` is relative, a function of the same operands; the answer if not given. `True`,
            as for a sum, is `answer` of the operands' magnitudes.
    """

    name: str
    operands: str
    compute: Callable[..., Any]
    answer: Callable[..., Any]
    places: float = _EXACT
    size: Callable[..., Any] | bool = False

    def expected(self, operands: Sequence[Array]) -> tuple[Array, Array]:
        """Returns the answer in float64 and the bound of a result's deviation; operands are NumPy's, in their order."""
        wide = [each.astype(np.float64) if each.dtype == np.float32 else each for each in operands]
        answer = self.answer(*wide)
        size = self.answer(*map(np.abs, wide)) if self.size is True else self.size(*wide) if self.size else answer
        return answer, self.places * 2.0**-23 * np.abs(size) + _LEAST

    def fault(self, first: Array, second: Array, operands: Sequence[Array]) -> str:
        """Returns the fault of two results of the same work, as text; empty where rounding explains it."""
        differing = int(np.count_nonzero(bits_of(first) != bits_of(second)))
        if differing:
            return f"{differing} of {first.size} elements differ between two times"
        answer, bound = self.expected(operands)
        off = int(np.count_nonzero(is_off(first.reshape(answer.shape), answer, bound)))
        return f"{off} of {first.size} elements are not what float64 says" if off else ""

    def is_coarse(self, found: Array, operands: Sequence[Array]) -> bool:
        """Returns whether a result is off by more than allowed, but by no more than reduced precision explains."""
        near, far = (work.expected(operands) for work in (self, self._replace(places=max(self.places, _GROSS))))
        near_off, far_off = (is_off(found.reshape(answer.shape), answer, bound).any() for answer, bound in (near, far))
        return bool(near_off and not far_off)


def bits_of(found: Array) -> Array:
    """Returns the bits of float32 numbers as integers."""
    return np.ascontiguousarray(found).view(np.uint32).reshape(found.shape)


def is_off(found: Array, answer: Array, bound: Array) -> Array:
    """Returns a mask of the numbers further from their answer than `bound`; NaN counts as further."""
    with np.errstate(invalid="ignore", over="ignore"):
        return ~(np.abs(found - answer) <= bound)


def operands_of(values: Array, turn: int, shape: tuple[int, int] = SHAPE) -> dict[str, Array]:
    """Returns the operands, made from a weight's numbers: magnitudes differ by row, and change with each turn.

    Returns:
        `x`, `y` and `d` of `shape`; `p`, positive; `s`, within 8 of 0; `n`, whose rows vary; `a` and `b`, whose product
        has the shape; `j` and `k`, the same with integers; `v`, one row; `i`, row numbers; `m`, a mask.
    """
    rows, columns = shape
    inner = 3 * columns // 4
    held = np.nan_to_num(np.asarray(values, np.float32).ravel(), posinf=1.0, neginf=-1.0)
    held = np.where(held == 0, np.float32(0.1), np.clip(held, -16, 16))

    def some(shift: int, *shape: int) -> Array:
        flat = np.resize(np.roll(held, shift + 7 * turn), shape)
        orders = (np.arange(shape[0]) + turn) % 16 - 10
        return (flat * np.exp2(orders).reshape((-1,) + (1,) * (len(shape) - 1))).astype(np.float32)

    def whole(shift: int, *shape: int) -> Array:
        numbers = np.arange(np.prod(shape)).reshape(shape)
        return ((numbers * numbers % 61 + shift + turn) % 31 - 15).astype(np.float32)

    x, y = some(0, rows, columns), some(3, rows, columns)
    return {
        "x": x,
        "y": y,
        "d": some(5, rows, columns),
        "p": np.abs(x) + np.float32(2.0**-6),
        "s": np.clip(4 * y, -8, 8),
        "n": np.clip(y, -1, 1) + np.linspace(-2, 2, columns, dtype=np.float32),
        "a": some(11, rows, inner),
        "b": some(13, inner, columns),
        "j": whole(11, rows, inner),
        "k": whole(13, inner, columns),
        "v": some(17, columns),
        "i": ((np.arange(rows) * 5 + turn) % rows).astype(np.int32),
        "m": (np.arange(rows * columns).reshape(rows, columns) + turn) % 3 == 0,
    }

"""What rounding explains between two runs that need not be equal bit for bit: other tools, modes or frameworks.

    difference = the larger of  |n - b| by root mean square / that of the tensors it is computed from
                          and   largest |n - b| / largest magnitude among them
    explained  = up to 4 units of the coarser type and 16 units of float32 a square root of the longest sum,
                 and up to 100 times what the inputs differ by

Of a summary the longest sum is that of all elements, as its mean and norm are sums too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from asd.dumps.formats.slots import Slot

__all__ = ["GAIN", "Scale", "allowed_for", "difference_of", "scale_of"]

GAIN = 100.0
"""How much a sound operator may enlarge a difference: a softmax, or a difference of numbers that nearly cancel."""
_UNITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-23, "float32": 2.0**-23}


class Scale(NamedTuple):
    """How large the tensors of a call are.

    Attributes:
        rms: The largest root mean square.
        magnitude: The largest magnitude of an element.
    """

    rms: float
    magnitude: float


def scale_of(slots: Sequence[Slot]) -> Scale:
    """Of the trusted run's floating-point tensors."""
    rms = magnitude = 0.0
    for slot in slots:
        top, low, _, norm = slot.values
        if _type(slot) in _UNITS and None not in (top, low, norm):
            magnitude = max([magnitude, *(abs(each) for each in (top, low) if math.isfinite(each))])
            if math.isfinite(norm):
                rms = max(rms, abs(norm) / math.sqrt(math.prod(slot.shape) or 1))
            elif _overflowed(slot):
                rms = max(rms, abs(top), abs(low))  # it is at most that
    return Scale(rms, magnitude)


def allowed_for(slots: Sequence[Slot], *, summary: bool) -> float:
    """What rounding explains by itself in a call with these slots, of both runs.

    Args:
        slots: Its tensors.
        summary: Whether only their statistics are known.
    """
    types = [_UNITS[_type(slot)] for slot in slots if _type(slot) in _UNITS]
    longest = max((math.prod(slot.shape) if summary else max(slot.shape, default=1) for slot in slots), default=1)
    return 4 * max(types, default=0.0) + 16 * _UNITS["float32"] * math.sqrt(max(longest, 1))


def difference_of(
    tested: Slot, trusted: Slot, scale: Scale, euclidean: object = None, largest: object = None
) -> float | None:
    """How far apart two tensors are; None when that is not known, infinite when they can't be compared.

    Args:
        tested: Of the run under test.
        trusted: Of the trusted run.
        scale: Of the tensors it was computed from.
        euclidean: L2 norm of the difference, where the tensors are at hand.
        largest: Largest difference of an element, likewise.
    """
    size = math.prod(trusted.shape) or 1
    if isinstance(euclidean, float) and isinstance(largest, float):
        return max(_ratio(euclidean / math.sqrt(size), scale.rms), _ratio(largest, scale.magnitude))
    pairs = list(zip(tested.values, trusted.values, strict=True))
    if any(None in pair for pair in pairs[:2]):
        return None
    found = [0.0]
    over = (scale.magnitude, scale.magnitude, scale.rms, scale.rms * math.sqrt(size))
    for (n, b), whole in zip(pairs, over, strict=True):
        if n is None or b is None or n == b or (math.isnan(n) and math.isnan(b)):
            continue
        if not (math.isfinite(n) and math.isfinite(b)):
            if _overflowed(tested) or _overflowed(trusted):
                continue
            return math.inf
        found.append(_ratio(abs(n - b), whole))
    return max(found)


def _overflowed(slot: Slot) -> bool:
    """Whether a mean or norm is infinite of finite elements: it was summed in a type that can't hold it."""
    top, low, *sums = slot.values
    infinite = any(each is not None and not math.isfinite(each) for each in sums)
    return infinite and all(each is not None and math.isfinite(each) for each in (top, low))


def _ratio(difference: float, whole: float) -> float:
    return difference / whole if whole else math.inf if difference else 0.0


def _type(slot: Slot) -> str:
    return slot.dtype.lower().rpartition(".")[2]

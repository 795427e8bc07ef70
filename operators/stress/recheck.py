"""How often a device computes a kept call otherwise, or wrongly."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asd.operators.stress.kept_call import Answer, KeptCall

__all__ = ["Recheck", "first_difference", "recheck"]

_LEAST = 2  # repetitions, however short the time is
_MOST_KEPT = 1000  # results that are told apart


@dataclass
class Recheck:
    """What came of computing a call again and again.

    Attributes:
        name: Of the call.
        times: How often it was computed.
        otherwise: How often the bits were not those of most of the times.
        seconds: How long it took.
        usual: The result of most of the times.
        answer: What float64 says of that.
        kept: The result that the training kept.
    """

    name: str
    times: int
    otherwise: int
    seconds: float
    usual: np.ndarray[Any, Any] = field(repr=False)
    answer: Answer = field(repr=False)
    kept: np.ndarray[Any, Any] = field(repr=False)

    @property
    def failed(self) -> bool:
        """Whether the device computed wrongly, this time."""
        return self.otherwise > 0 or self.answer.right is False


def recheck(
    call: KeptCall, seconds: float, tell: Callable[[float, int], None] = lambda _seconds, _count: None
) -> Recheck:
    """Computes `call` on the device that is set until the time is up, at least twice.

    Args:
        call: It.
        seconds: How long.
        tell: Is told the seconds so far and how often it was computed.

    Raises:
        UnsupportedError: The device can't do it.
    """
    began = time.monotonic()
    results: dict[bytes, np.ndarray[Any, Any]] = {}
    counts: Counter[bytes] = Counter()
    others = times = 0
    while times < _LEAST or time.monotonic() - began < seconds:
        result = call.compute()
        bits, times = result.tobytes(), times + 1
        if bits in results or len(results) < _MOST_KEPT:
            results.setdefault(bits, result)
            counts[bits] += 1
        else:
            others += 1
        tell(time.monotonic() - began, times)
    (usual, count), *_ = counts.most_common(1)
    took = time.monotonic() - began
    return Recheck(call.name, times, times - count, took, results[usual], call.answer(results[usual]), call.kept)


def first_difference(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> tuple[int, tuple[int, ...]]:
    """How many elements differ in their bits, and the index of the first of them; 0 and nothing where none does."""
    kind = f"u{one.dtype.itemsize}"
    differs = np.ascontiguousarray(one).view(kind).reshape(-1) != np.ascontiguousarray(other).view(kind).reshape(-1)
    if not differs.any():
        return 0, ()
    at = np.unravel_index(int(differs.argmax()), one.shape)
    return int(differs.sum()), tuple(map(int, at))

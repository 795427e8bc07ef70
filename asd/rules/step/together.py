"""A change of the training or a fault of one place: the first moves all places of a step together."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, isnan
from statistics import median
from typing import NamedTuple

FEWEST = 4
"""Places without which nothing is said: one or two that move together show nothing."""
DOUBLED = 1.0
"""Bits that a place has to rise by."""
SLACK = 1.0
"""Bits by which a place may be further from its range than the others are."""
OUTLIERS = 10
"""One place of so many may do as it likes."""


class Movement(NamedTuple):
    """How the places of a step moved.

    Attributes:
        cause: `change` where one factor brings all back into what they have shown, `divergence` where all grew in this
            step and in the one before; else empty, see `asd.event.CAUSES`.
        bits: That factor, as a logarithm; 0 where there is none.
        ranges: What is the range of each place from the second such step on; empty in the first.
    """

    cause: str = ""
    bits: float = 0.0
    ranges: Mapping[str, tuple[float, float]] = {}


class Together:
    """Looks at all places of each step before any of them is judged.

    The weight of a loss, its reduction, or the number of its terms multiplies every gradient by about one number. A
    device that computes one operator wrongly leaves the places before it alone, or moves those behind it by numbers of
    their own. In a training that diverges, all places grow from step to step.

    Examples:
        >>> together, usual = Together(), {place: (-1.0, 1.0) for place in "abcd"}
        >>> together.look(dict.fromkeys("abcd", 7.0), usual).cause
        'change'
        >>> together.look(dict.fromkeys("abcd", 7.5), usual).ranges["a"]
        (5.25, 7.25)
        >>> Together().look({"a": 7.0, "b": 0.0, "c": 0.0, "d": 0.0}, usual).cause
        ''
    """

    def __init__(self) -> None:
        self._last: Mapping[str, float] = {}
        self._rises = 0
        self._before: tuple[float, Mapping[str, tuple[float, float]]] | None = None

    def look(self, values: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]) -> Movement:
        """How the places of this step moved.

        Args:
            values: By place, as logarithms; `inf` for what is not finite. Zeros are left out.
            ranges: The recent smallest and largest of each, before this step; NaN where none is known.
        """
        rises = [value - self._last[name] >= DOUBLED for name, value in values.items() if name in self._last]
        self._last = dict(values)
        grows = len(rises) >= FEWEST and sum(rises) >= len(rises) - len(rises) // OUTLIERS
        self._rises = self._rises + 1 if grows else 0
        first, self._before = self._before, None
        bits = _factor(values, first[1] if first is not None else ranges)
        if self._rises > 1:
            return Movement("divergence")
        if not bits:
            return Movement()
        if first is None:
            self._before = bits, dict(ranges)
            return Movement("change", bits)
        bits = (first[0] + bits) / 2
        return Movement("change", bits, {name: (low + bits, high + bits) for name, (low, high) in first[1].items()})


def _factor(values: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]) -> float:
    """By how many bits all places are above their ranges, if by about as much; else 0."""
    known = [(value, *ranges[name]) for name, value in values.items() if name in ranges and not isnan(ranges[name][1])]
    if len(known) < FEWEST or not all(isfinite(value) for value, _, _ in known):
        return 0.0
    above_high, above_low = sorted(x - high for x, _, high in known), sorted(x - low for x, low, _ in known)
    spare, bits = len(known) // OUTLIERS, median(above_high)
    fits = above_high[-1 - spare] - SLACK <= above_low[spare] + SLACK
    return bits if fits and bits >= DOUBLED else 0.0

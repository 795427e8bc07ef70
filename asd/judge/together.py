"""A change of the training or a fault of one place: the first moves all places of a step together."""

from collections.abc import Mapping
from math import isfinite, isnan
from statistics import median

FEWEST = 4  # sites: one or two that move together show nothing
DOUBLED = 1.0  # bits by which a site must rise
SLACK = 1.0  # bits by which a site may be further from its range than the others
OUTLIERS = 10  # one site in so many may differ


class Together:
    """Detector of changes of all sites together, in each step before any site is judged.

    The weight of a loss, its reduction, or the number of its terms multiplies every gradient by about one number. A
    device that computes one operator wrongly leaves the places before it alone, or moves those behind it by numbers of
    their own. In a training that diverges, all places grow from step to step.

    Examples:
        >>> together, usual = Together(), {place: (-1.0, 1.0) for place in "abcd"}
        >>> together.look(dict.fromkeys("abcd", 7.0), usual), together.look(dict.fromkeys("abcd", 7.5), usual)
        (('change', False), ('change', True))
        >>> Together().look({"a": 7.0, "b": 0.0, "c": 0.0, "d": 0.0}, usual)
        ('', False)
    """

    def __init__(self) -> None:
        self._last: Mapping[str, float] = {}
        self._rises = 0
        self._before: Mapping[str, tuple[float, float]] = {}  # what was usual before a change began

    def look(self, values: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]) -> tuple[str, bool]:
        """Returns what moved the sites of this step together, one of `asd.event.CAUSES` or nothing.

        Args:
            values: Logarithms of the values by site; `inf` for values that are not finite. Zeros are left out.
            ranges: The recent smallest and largest of each, before this step; NaN where none is known.

        Returns:
            `change` where one factor brings all back into their ranges, `divergence` where all grew in this step and in
            the one before; and whether it is the second step of a change, or a later one.
        """
        rises = [value - self._last[name] >= DOUBLED for name, value in values.items() if name in self._last]
        self._last = dict(values)
        grows = len(rises) >= FEWEST and sum(rises) >= len(rises) - len(rises) // OUTLIERS
        self._rises = self._rises + 1 if grows else 0
        before = self._before
        moved = _are_moved(values, before or ranges)
        self._before = (before or dict(ranges)) if moved else {}
        return ("divergence" if self._rises > 1 else "change" if moved else ""), moved and bool(before)


def _are_moved(values: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]) -> bool:
    """Returns whether all sites are above their ranges, by about the same factor."""
    known = [(value, *ranges[name]) for name, value in values.items() if name in ranges and not isnan(ranges[name][1])]
    if len(known) < FEWEST or not all(isfinite(value) for value, _, _ in known):
        return False
    above_high, above_low = sorted(x - high for x, _, high in known), sorted(x - low for x, low, _ in known)
    spare = len(known) // OUTLIERS
    return above_high[-1 - spare] - SLACK <= above_low[spare] + SLACK and median(above_high) >= DOUBLED

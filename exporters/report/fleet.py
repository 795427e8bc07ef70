"""Rates of faulty devices by group of a fleet, such as firmware, and the groups that stand out."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from asd.handler.db.fleet import Used
from asd.handler.model.policy import BREAKER_SECONDS

BY = ("model", "firmware", "driver", "cann", "board", "node")  # properties by which devices are grouped
_SIGNIFICANCE, _FEWEST = 0.01, 2
_PER = 1000.0  # device-days
_NORMAL = 1.959964  # quantile of 95 %, two-sided
_Names = tuple[str, ...]


class Group(NamedTuple):
    """Devices that agree in some properties."""

    names: _Names  # values of the properties; empty where they are not known
    devices: int  # number of devices
    device_days: float  # days in which they were watched in trainings, summed
    faults: int  # faulty devices; those of one node within a day are one
    rate: float | None  # faults per 1,000 device-days; None without days
    low: float | None  # interval of 95 % of that rate
    high: float | None
    chance: float  # of so many faults if all groups had one rate, corrected for the number of groups
    stands_out: bool  # whether that chance is below 1 %, with two faults or more


def groups(used: Iterable[Used], faults: Iterable[tuple[float, Used]], *by: str) -> list[Group]:
    """Returns the groups by some of `BY`, the highest rate first."""
    days: dict[_Names, float] = {}
    counts = Counter[_Names]()
    devices: dict[_Names, set[_Names]] = {}
    last: dict[tuple[_Names, str], float] = {}
    for opened, each in [(0.0, each) for each in used] + sorted(faults, key=lambda each: each[0]):
        names = tuple(each.host if name == "node" else getattr(each.hardware, name) for name in by)
        days[names] = days.get(names, 0.0) + each.days
        devices.setdefault(names, set()).add((each.host, each.serial or each.device))
        if opened and opened - last.get((names, each.host), 0.0) >= BREAKER_SECONDS:  # a bad board is one fault
            counts[names] += 1
            last[names, each.host] = opened
    chances = _chances(counts, {names: each for names, each in days.items() if each > 0})
    found = []
    for names, count in ((names, counts[names]) for names in days):
        chance = chances.get(names, 1.0)
        out = count >= _FEWEST and chance < _SIGNIFICANCE
        found.append(Group(names, len(devices[names]), days[names], count, *_rates(count, days[names]), chance, out))
    return sorted(found, key=lambda each: (-(each.rate or 0.0), each.names))


def _rates(count: int, days: float) -> tuple[float | None, float | None, float | None]:
    """Returns the rate and its interval, by Byar's approximation of Poisson's."""
    if not days:
        return None, None, None
    low = count * (1 - 1 / (9 * count) - _NORMAL / (3 * math.sqrt(count))) ** 3 if count else 0.0
    more = count + 1
    high = more * (1 - 1 / (9 * more) + _NORMAL / (3 * math.sqrt(more))) ** 3
    return _PER * count / days, _PER * low / days, _PER * high / days


def _chances(counts: Counter[_Names], days: dict[_Names, float]) -> dict[_Names, float]:
    """Returns the chance of so many faults or more in each group, if they fell on device-days alone.

    The test is exact and one-sided, by a binomial distribution; Holm's method corrects for the number of groups.
    """
    total, whole = sum(counts[names] for names in days), sum(days.values())
    alone = {names: _tail(counts[names], total, each / whole) for names, each in days.items()}
    found, least = {}, 0.0
    for place, names in enumerate(sorted(alone, key=alone.__getitem__)):
        found[names] = least = max(least, min(1.0, (len(alone) - place) * alone[names]))
    return found


def _tail(count: int, total: int, share: float) -> float:
    if not count or share >= 1:
        return 1.0
    every = range(count, total + 1)
    ways = {k: math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) for k in every}
    return sum(math.exp(ways[k] + k * math.log(share) + (total - k) * math.log1p(-share)) for k in every)

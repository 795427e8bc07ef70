"""Rates of faulty devices by group of a fleet, such as firmware, and the groups that stand out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from asd.handler.db.fleet import Fault, Used
from asd.origin import Hardware

BY = ("model", "firmware", "driver", "cann", "board", "node")
_SIGNIFICANCE = 0.01  # chance that a healthy fleet has a group that stands out
_FEWEST = 2  # faults of a group that stands out
_NORMAL = 1.959964  # quantile of 95 %, two-sided
_PER = 1000.0  # device-days
_DAY = 86400.0
_Names = tuple[str, ...]


class Group(NamedTuple):
    """Devices that agree in some properties."""

    names: tuple[str, ...]  # values of the properties; empty where they are not known
    devices: int  # number of devices
    device_days: float  # days in which they were watched in trainings, summed
    faults: int  # faulty devices, those of one node within a day counted once
    rate: float | None  # faults per 1,000 device-days; None without days
    low: float | None  # interval of 95 % of that rate
    high: float | None
    chance: float  # of so many faults if all groups had one rate, corrected for the number of groups
    stands_out: bool  # whether that chance is below 1 %, with two faults or more


def groups(used: Iterable[Used], faults: Iterable[Fault], *by: str) -> list[Group]:
    """Returns the groups by some of `BY`, the highest rate first."""
    days: dict[_Names, float] = defaultdict(float)
    devices: dict[_Names, set[tuple[str, str]]] = defaultdict(set)
    for each in used:
        name = _name(each.hardware, each.host, by)
        days[name] += each.days
        devices[name].add((each.host, each.serial or each.device))
    counts = dict.fromkeys(days, 0)
    last: dict[tuple[_Names, str], float] = {}
    for fault in sorted(faults, key=lambda each: each.time):
        name = _name(fault.hardware, fault.host, by)
        counts.setdefault(name, 0)
        devices[name].add((fault.host, fault.device))
        if fault.time - last.get((name, fault.host), -math.inf) >= _DAY:  # a bad board is one fault
            counts[name] += 1
            last[name, fault.host] = fault.time
    chances = _corrected({name: _chance(counts[name], days[name], counts, days) for name in days if days[name] > 0})
    found = [
        Group(
            name,
            len(devices[name]),
            round(days.get(name, 0.0), 2),
            count,
            *_rates(count, days.get(name, 0.0)),
            chances.get(name, 1.0),
            count >= _FEWEST and chances.get(name, 1.0) < _SIGNIFICANCE,
        )
        for name, count in counts.items()
    ]
    return sorted(found, key=lambda each: (-(each.rate or 0.0), each.names))


def _name(hardware: Hardware, host: str, by: Sequence[str]) -> _Names:
    return tuple(host if each == "node" else str(getattr(hardware, each)) for each in by)


def _rates(count: int, days: float) -> tuple[float | None, float | None, float | None]:
    """Returns the rate and its interval, by Byar's approximation of Poisson's."""
    if not days:
        return None, None, None
    low = count * (1 - 1 / (9 * count) - _NORMAL / (3 * math.sqrt(count))) ** 3 if count else 0.0
    more = count + 1
    high = more * (1 - 1 / (9 * more) + _NORMAL / (3 * math.sqrt(more))) ** 3
    return _PER * count / days, _PER * low / days, _PER * high / days


def _chance(count: int, days: float, counts: dict[_Names, int], all_days: dict[_Names, float]) -> float:
    """Returns the chance of `count` faults or more in a group, if faults fell on device-days alone."""
    total = sum(counts[name] for name, each in all_days.items() if each > 0)
    share = days / sum(all_days.values())
    if not count or share >= 1:
        return 1.0
    choose = (math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) for k in range(count, total + 1))
    terms = (c + k * math.log(share) + (total - k) * math.log1p(-share) for k, c in enumerate(choose, count))
    return min(1.0, sum(map(math.exp, terms)))


def _corrected(chances: dict[_Names, float]) -> dict[_Names, float]:
    """Returns the chances corrected for their number, by Holm's method."""
    found, least = {}, 0.0
    for place, (name, chance) in enumerate(sorted(chances.items(), key=lambda each: each[1])):
        least = max(least, min(1.0, (len(chances) - place) * chance))
        found[name] = least
    return found

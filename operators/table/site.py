"""A checked place and its number in the table."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from asd.errors import UnsupportedError

__all__ = ["Site", "Sites", "is_ours", "largest_raw", "smallest_raw"]


def is_ours(path: str) -> bool:
    """Whether the cell at `path` of a network is one that checks, and no part of the network itself."""
    return any(name in path for name in ("asd_tap", "asd_gate", "asd_own_gradients"))


class Site:
    """A checked place.

    Attributes:
        slot: Its number in the table.
        made: The how many-th it is of all that were ever made.
        name: Its name in the network, which is known once `install` has seen the network it belongs to.
        kind: Which kind of tensor it sees, see `asd.rules.readings.reading.Reading`.
        claimed: Whether `install` has seen it.
        watched: Whether a monitor judges it.
        owner: The gate of that monitor, if it lives.
        largest: Whether its statistic is the largest magnitude; else the L2 norm.
    """

    def __init__(self, slot: int, made: int, name: str, kind: str) -> None:
        self.slot = slot
        self.made = made
        self.name = name
        self.kind = kind
        self.claimed = False
        self.watched = False
        self.owner: weakref.ref[Any] | None = None
        self.largest = False
        self._measures: weakref.WeakSet[Any] = weakref.WeakSet()

    def __deepcopy__(self, memo: Any) -> Site:
        """Itself: a copy of a network is checked where the network is."""
        return self

    def measured_by(self, cell: Any) -> None:
        """Says which `Statistics` a compiled graph calls for it."""
        cell.largest = self.largest
        self._measures.add(cell)

    def measure(self, *, largest: bool) -> None:
        """Chooses the statistic; before anything is compiled."""
        self.largest = largest
        for cell in self._measures:
            cell.largest = largest


class Sites:
    """The living sites of a table; a slot is free again when nobody holds its site any more.

    Args:
        capacity: Slots of the table.

    Attributes:
        living: By slot.
        made: How many there ever were.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.living: weakref.WeakValueDictionary[int, Site] = weakref.WeakValueDictionary()
        self.made = 0

    def new(self, name: str, kind: str) -> Site:
        """A site in a free slot.

        Raises:
            UnsupportedError: None is free.
        """
        slot = next((i for i in range(self.capacity) if i not in self.living), None)
        if slot is None:
            raise UnsupportedError(f"checkpoint {name} can't be added: all {self.capacity} slots are in use.")
        self.made += 1
        site = self.living[slot] = Site(slot, self.made, name, kind)
        return site

    def dead(self, used: int) -> np.ndarray:
        """Which of the first `used` slots belong to no living site, as numbers."""
        dead = np.ones(used, bool)
        dead[[slot for slot in list(self.living) if slot < used]] = False
        return np.flatnonzero(dead)

    def ordered(self) -> list[Site]:
        """All of them, in the order of their slots."""
        return [site for _, site in sorted(self.living.items())]


def largest_raw(limit: float, scale: float, dtype: type[np.floating] = np.float64) -> float:
    """The largest raw value of `dtype` that does not break `limit`, by the arithmetic with which the host judges."""
    if math.isinf(limit) or (scale == 1.0 and (dtype is np.float64 or limit == 1.0)):  # 1 is that of all scores
        return limit
    with np.errstate(over="ignore"):
        raw = dtype(limit * scale)
        while float(raw) / scale > limit:
            raw = np.nextafter(raw, dtype(-np.inf))
        while not float(above := np.nextafter(raw, dtype(np.inf))) / scale > limit:
            raw = above
    return float(raw)


def smallest_raw(limit: float, scale: float, dtype: type[np.floating] = np.float64) -> float:
    """The smallest raw value of `dtype` that is not below `limit`, by the arithmetic with which the host judges."""
    if limit == 0.0 or (scale == 1.0 and dtype is np.float64):
        return limit
    with np.errstate(over="ignore", under="ignore"):
        raw = dtype(limit * scale)
        while float(raw) / scale < limit:
            raw = np.nextafter(raw, dtype(np.inf))
        while float(below := np.nextafter(raw, dtype(-np.inf))) / scale >= limit:
            raw = below
    return float(raw)

"""A checked tensor of the network and its number in the table."""

from __future__ import annotations

import weakref
from heapq import heappop, heappush
from typing import Any

import numpy as np

from asd.errors import UnsupportedError


def is_ours(path: str) -> bool:
    """Returns whether the cell at `path` of a network is a check, and no part of the network itself."""
    return any(name in path for name in ("asd_tap", "asd_gate", "asd_own_gradients", "asd_links"))


class Site:
    """Checked tensor of the network.

    Attributes:
        slot: Its number in the table.
        made: Its number among all sites ever made.
        called: Its number in the order of first calls by compiled networks; 0 before its call.
        name: Its name in the network, which is known once `install` has seen the network it belongs to.
        kind: Kind of the tensor, see `asd.rules.reading.Reading`.
        claimed: Whether `install` has seen it.
        owner: Gate of the last monitor that took it, while that lives.
        largest: Whether its statistic is the largest magnitude; else the L2 norm.
    """

    def __init__(self, slot: int, made: int, name: str, kind: str) -> None:
        self.slot = slot
        self.made, self.called = made, 0
        self.name = name
        self.kind = kind
        self.claimed = False
        self.owner: weakref.ref[Any] | None = None
        self.largest = False
        self._measures: weakref.WeakSet[Any] = weakref.WeakSet()

    def __deepcopy__(self, memo: Any) -> Site:
        """Returns itself: a copy of a network is checked where the network is."""
        return self

    @property
    def watched_by(self) -> Any:
        """Gate of the monitor that judges it; None without one, or after the end of its training."""
        owner = self.owner() if self.owner is not None else None
        return None if owner is None or owner.is_free else owner

    def measured_by(self, cell: Any) -> None:
        """Registers `cell`, the `Statistics` that a compiled graph calls for this site."""
        cell.largest = self.largest
        self._measures.add(cell)

    def leave_overflows(self, leaves: bool) -> None:  # noqa: FBT001 - an on-off switch
        """Sets whether values that are not finite are left to a dynamic loss scaler; before anything is compiled."""
        for cell in self._measures:
            cell.leaves_overflows = leaves

    def measure(self, *, largest: bool) -> None:
        """Chooses the statistic; before anything is compiled."""
        self.largest = largest
        for cell in self._measures:
            cell.largest = largest


class Sites:
    """The living sites of a table; a slot is free again when its site is no longer held.

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
        self._freed: list[int] = []  # a heap
        self._next = 0

    def new(self, name: str, kind: str) -> Site:
        """Returns a site in the first free slot; raises UnsupportedError if none is free."""
        slot = heappop(self._freed) if self._freed else self._next
        if slot >= self.capacity:
            raise UnsupportedError(f"checkpoint {name} can't be added: all {self.capacity} slots are in use.")
        self._next = max(self._next, slot + 1)
        self.made += 1
        site = self.living[slot] = Site(slot, self.made, name, kind)
        weakref.finalize(site, heappush, self._freed, slot).atexit = False
        return site

    def dead(self) -> np.ndarray:
        """Returns the numbers of slots that belong to no living site."""
        dead = np.ones(self.capacity, bool)
        dead[list(self.living)] = False
        return np.flatnonzero(dead)

    def ordered(self) -> list[Site]:
        """Returns all of them, in the order of their slots."""
        return [site for _, site in sorted(self.living.items())]


@np.errstate(over="ignore", under="ignore")
def largest_raw(limits: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Returns the largest raw values that do not break limits, by the arithmetic with which the host judges.

    Args:
        limits: float64 of any shape.
        scales: float64 of that shape: divisors of raw values.

    Returns:
        float32 of that shape; infinite where the limit is.
    """
    found: np.ndarray = (limits * scales).astype(np.float32)
    while (large := np.isfinite(limits) & (found.astype(np.float64) / scales > limits)).any():
        found[large] = np.nextafter(found[large], np.float32(-np.inf))
    above = np.nextafter(found, np.float32(np.inf))
    while (small := np.isfinite(limits) & (above.astype(np.float64) / scales <= limits)).any():
        found[small] = above[small]
        above[small] = np.nextafter(above[small], np.float32(np.inf))
    return found


@np.errstate(over="ignore", under="ignore")
def smallest_raw(limits: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Returns the smallest raw values, from 0 on, that are not below limits; with the arguments of `largest_raw`."""
    below = largest_raw(np.nextafter(limits, -np.inf), scales)
    found: np.ndarray = np.maximum(np.nextafter(below, np.float32(np.inf)), np.float32(0))
    return found

"""Whose fault it was, and what ranks tell one another to find out."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple


class Seen(NamedTuple):
    """What one rank saw at one checkpoint in one step.

    Attributes:
        order: Orders the checkpoints of the rank by the backward pass; smaller is earlier.
        value: The feature value, from 0 on, or `inf` or `nan`.
        broken: Whether it broke its first-level limit.
    """

    order: int
    value: float
    broken: bool


class Attribution(NamedTuple):
    """Who it was.

    Attributes:
        origin: The rank; None when nobody can be named.
        checkpoint: Where the origin broke a limit first; empty without an origin.
        followers: The other ranks that broke a limit.
        reason: Why, or why not, in a few words.
        shared: Whether it came from several ranks, as a mean does: without an origin no device is named then.
    """

    origin: int | None
    checkpoint: str
    followers: tuple[int, ...]
    reason: str
    shared: bool = False

    @property
    def names_nobody(self) -> bool:
        """Whether it may have been any of several ranks."""
        return self.shared and self.origin is None

    @property
    def ranks(self) -> tuple[int, ...]:
        """All that broke a limit."""
        return self.followers if self.origin is None else tuple(sorted((self.origin, *self.followers)))


def pack_seen(seen: Mapping[str, Seen]) -> bytes:
    """What one rank tells the others: what it saw, per checkpoint; some 10 bytes for each of many checkpoints."""
    names = json.dumps(list(seen)).encode()
    orders = array("q", [each.order for each in seen.values()])
    values = array("d", [each.value for each in seen.values()])
    broken = bytes(each.broken for each in seen.values())
    head = len(names).to_bytes(4, "little")
    return zlib.compress(head + names + broken + orders.tobytes() + values.tobytes(), 1)


def unpack_seen(message: bytes) -> Mapping[str, Seen]:
    """What `pack_seen` packed, by a rank whose machine has the same byte order."""
    return _ToldRank(zlib.decompress(message))


class _ToldRank(Mapping[str, Seen]):
    """What another rank saw; of thousands of ranks little is looked at, so nothing is made of it until then."""

    __slots__ = ("_orders", "_places", "_values", "broken")

    def __init__(self, content: bytes) -> None:
        names = 4 + int.from_bytes(content[:4], "little")
        self._places = _places(content[4:names])
        orders = names + len(self._places)
        values = orders + 8 * len(self._places)
        self.broken = content[names:orders]
        self._orders, self._values = array("q", content[orders:values]), array("d", content[values:])

    def __getitem__(self, name: str) -> Seen:
        place = self._places[name]
        return Seen(self._orders[place], self._values[place], bool(self.broken[place]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@lru_cache(256)
def _places(names: bytes) -> dict[str, int]:
    """Where each checkpoint stands; the same for all ranks that hold the same part of the network."""
    return {name: place for place, name in enumerate(json.loads(names))}


def has_broken(seen: Mapping[str, Seen]) -> bool:
    """Whether a rank broke a limit anywhere."""
    return any(seen.broken) if isinstance(seen, _ToldRank) else any(each.broken for each in seen.values())

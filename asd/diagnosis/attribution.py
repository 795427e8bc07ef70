"""Result of an attribution, and the values that ranks exchange for it."""

import json
import zlib
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple


class Seen(NamedTuple):
    """Values of one rank at one checkpoint in one step."""

    order: int  # orders the checkpoints of the rank by the backward pass; smaller is earlier
    value: float  # feature value, from 0 on, or `inf` or `nan`
    broken: bool  # whether the value broke its first-level limit


class Attribution(NamedTuple):
    """Rank at fault, as far as known."""

    origin: int | None  # the rank; None when it is unknown
    checkpoint: str  # first checkpoint at which the origin broke a limit; empty without an origin
    followers: tuple[int, ...]  # the other ranks that broke a limit
    reason: str  # reason of the result, in a few words
    # whether the value came from several ranks, as a mean does; without an origin no device is named then
    shared: bool = False
    compared: bool = True  # whether replicas of the origin were right

    @property
    def names_nobody(self) -> bool:
        """Returns whether any of several ranks may be at fault."""
        return self.shared and self.origin is None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Returns all ranks that broke a limit."""
        return self.followers if self.origin is None else tuple(sorted((self.origin, *self.followers)))


def pack_seen(seen: Mapping[str, Seen]) -> bytes:
    """Packs the values of one rank by checkpoint for the others; about 10 bytes for each of many checkpoints."""
    names = json.dumps(list(seen)).encode()
    orders = array("q", [each.order for each in seen.values()])
    values = array("d", [each.value for each in seen.values()])
    broken = bytes(each.broken for each in seen.values())
    return zlib.compress(len(names).to_bytes(4, "little") + names + broken + orders.tobytes() + values.tobytes(), 1)


def unpack_seen(message: bytes) -> Mapping[str, Seen]:
    """Unpacks the message of `pack_seen`, from a machine of the same byte order."""
    return _ToldRank(zlib.decompress(message))


class _ToldRank(Mapping[str, Seen]):
    """Values of another rank, decoded on access: with thousands of ranks few values are read."""

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
    """Returns the index of each checkpoint; cached, since replicas have the same names."""
    return {name: place for place, name in enumerate(json.loads(names))}


def has_broken(seen: Mapping[str, Seen]) -> bool:
    """Returns whether a rank broke any limit."""
    return any(seen.broken) if isinstance(seen, _ToldRank) else any(each.broken for each in seen.values())

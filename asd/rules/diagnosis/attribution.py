"""Whose fault was it: one origin among the ranks that raised in the same step.

Values are taken before the gradients are summed over the ranks, so a rank's own fault shows on that rank first. Two
things tell the origin from those it dragged along: it broke a limit earliest in the backward pass, and its value stands
out from what the other ranks saw at the same checkpoint. Only ranks that hold the same part of the network can be
compared.
"""

from __future__ import annotations

import json
import math
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "OUTLIER_BITS",
    "Attribution",
    "Seen",
    "attribute",
    "distances",
    "pack_seen",
    "unpack_seen",
    "whose_fault",
    "whose_mean",
]

OUTLIER_BITS = 3.3
"""A value stands out when it is 2**3.3, about ten times, the median of the others. Healthy ranks came to 2.8 bits."""


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
        in_mean: Whether what broke a limit is a mean over the ranks that is bad on these ranks and good on others.
    """

    origin: int | None
    checkpoint: str
    followers: tuple[int, ...]
    reason: str
    in_mean: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """All that broke a limit."""
        return self.followers if self.origin is None else tuple(sorted((self.origin, *self.followers)))


class _Suspect(NamedTuple):
    rank: int
    checkpoint: str
    position: int  # of that checkpoint in the backward pass
    distance: float  # in bits, above the median of the other ranks; nan when there is nothing to compare with


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


def attribute(step: Mapping[int, Mapping[str, Seen]]) -> Attribution:
    """Names the rank whose fault it was.

    Args:
        step: Per rank and checkpoint what was seen in one step.

    >>> calm, wild = Seen(0, 1.0, False), Seen(0, 1e9, True)
    >>> attribute({0: {"norm": calm}, 1: {"norm": wild}, 2: {"norm": calm}}).origin
    1
    """
    values = _Values(step)
    suspects = [_suspect(rank, step[rank], values) for rank in sorted(step) if _has_broken(step[rank])]
    ranks = tuple(suspect.rank for suspect in suspects)
    if not suspects:
        return Attribution(None, "", (), "no rank broke a limit")
    if len(step) == 1:
        return _named(suspects[0], (), "there is no other rank")
    outliers = [suspect for suspect in suspects if suspect.distance >= OUTLIER_BITS]
    if len(step) == 2 and len(suspects) == 2:
        return _of_two(suspects)
    if not outliers:
        return Attribution(
            None,
            "",
            ranks,
            f"{_ranks(ranks)} broke a limit, but none stands out from the others by {OUTLIER_BITS} bits: the data or "
            "the software rather than a device",
        )
    first = min(suspect.position for suspect in outliers)
    earliest = [suspect for suspect in outliers if suspect.position == first]
    chosen = max(earliest, key=lambda suspect: suspect.distance)
    equals = tuple(suspect.rank for suspect in earliest if suspect.distance == chosen.distance)
    if len(equals) > 1:
        return Attribution(
            None, "", ranks, f"{_ranks(equals)} broke a limit at {chosen.checkpoint} first and stand out alike"
        )
    others = "" if len(outliers) == 1 else ", and broke its limit before the others that do"
    return _named(chosen, ranks, f"{_distance(chosen.distance)} there{others}")


def whose_fault(
    own: Mapping[int, Mapping[str, Seen]], averaged: Callable[[], Mapping[int, Mapping[str, Seen]]]
) -> Attribution:
    """Names the rank by what each saw alone, and by the means over the ranks where that shows nothing.

    Args:
        own: Per rank and checkpoint what it saw alone in one step.
        averaged: Gives the same of the means, which should be alike on all ranks. They count where no rank has a fault
            of its own: one whose copy is bad while others are not.
    """
    found = attribute(own)
    return found if found.ranks else whose_mean(averaged())


def whose_mean(averaged: Mapping[int, Mapping[str, Seen]]) -> Attribution:
    """Names the rank by the means alone: nobody's where they are good, or bad on all ranks alike."""
    found = attribute(averaged)
    # All of them alike: no rank is odd.
    if len(found.ranks) in (0, len(averaged)):
        return Attribution(None, "", (), "no rank broke a limit")
    return _of_mean(found)


def distances(step: Mapping[int, Mapping[str, Seen]], checkpoint: str) -> dict[int, float]:
    """How far each rank's value at a checkpoint is above the median of the others, in bits; nan where there is none."""
    values = _Values(step)
    return {
        rank: values.bits_above_others(checkpoint, seen[checkpoint].value)
        for rank, seen in step.items()
        if checkpoint in seen
    }


def _of_mean(found: Attribution) -> Attribution:
    """Some ranks have a bad mean and the others a good one."""
    ranks = found.ranks
    if len(ranks) == 1:
        where = f" at {found.checkpoint}" if found.checkpoint else ""
        reason = f"rank {ranks[0]} broke its limit{where}; its mean alone is bad: the device, or the way to it"
        return Attribution(ranks[0], found.checkpoint, (), reason, in_mean=True)
    # A bad part was passed on, and whose it was first can't be told.
    names = ", ".join(map(str, ranks))
    reason = f"the mean is bad on ranks {names} and good on the others: the ways between them are suspect too"
    return Attribution(None, "", ranks, reason, in_mean=True)


class _Values:
    """All values at a checkpoint, sorted once however many ranks are compared there."""

    def __init__(self, step: Mapping[int, Mapping[str, Seen]]) -> None:
        self._step = step
        self._sorted: dict[str, Sequence[float]] = {}

    def bits_above_others(self, checkpoint: str, value: float) -> float:
        """How far the value of one rank is above the median of the other ranks; nan when there is no other."""
        known = self._sorted.get(checkpoint)
        if known is None:
            known = sorted(_bits(seen[checkpoint].value) for seen in self._step.values() if checkpoint in seen)
            self._sorted[checkpoint] = known
        if len(known) == 1:
            return math.nan
        bits = _bits(value)
        # The lower median: of two others one may be at fault itself, and a healthy rank must not inherit half of that.
        middle = (len(known) - 2) // 2
        median = known[middle + (bisect_left(known, bits) <= middle)]  # the rank's own value is left out
        return 0.0 if bits == median else bits - median


def _has_broken(seen: Mapping[str, Seen]) -> bool:
    return any(seen.broken) if isinstance(seen, _ToldRank) else any(each.broken for each in seen.values())


def _suspect(rank: int, seen: Mapping[str, Seen], values: _Values) -> _Suspect:
    ordered = sorted(seen.items(), key=lambda item: item[1].order)
    position, (checkpoint, first) = next((i, item) for i, item in enumerate(ordered) if item[1].broken)
    return _Suspect(rank, checkpoint, position, values.bits_above_others(checkpoint, first.value))


def _bits(value: float) -> float:
    if not math.isfinite(value):
        return math.inf
    return math.log2(value) if value > 0 else -150.0  # below the smallest float32


def _of_two(suspects: list[_Suspect]) -> Attribution:
    """Both of two ranks raised: each is the other's only comparison, so order is all there is."""
    first, second = sorted(suspects, key=lambda suspect: suspect.position)
    reason = "both of two ranks broke a limit: who was first at fault can't be told"
    if first.position < second.position:
        reason += f"; rank {first.rank} broke its limit earlier in the backward pass, which is a hint and no proof"
    return Attribution(None, "", (suspects[0].rank, suspects[1].rank), reason)


def _named(suspect: _Suspect, ranks: tuple[int, ...], why: str) -> Attribution:
    followers = tuple(rank for rank in ranks if rank != suspect.rank)
    reason = f"rank {suspect.rank} broke its limit at {suspect.checkpoint}; {why}"
    return Attribution(suspect.rank, suspect.checkpoint, followers, reason)


def _distance(bits: float) -> str:
    if math.isnan(bits):
        return "no other rank can be compared"
    return "it alone is not finite" if math.isinf(bits) else f"it stands {bits:.1f} bits above the median of the others"


def _ranks(ranks: tuple[int, ...]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))

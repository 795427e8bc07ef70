"""Whose fault it was, and what ranks tell one another to find out."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = ["Attribution", "Seen", "has_broken", "pack_seen", "unpack_seen"]


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
    """What one rank tells the others: what it saw, per checkpoint; some 13 bytes for each of many."""
    return zlib.compress(msgspec.msgpack.encode(seen), 1)


def unpack_seen(message: bytes) -> dict[str, Seen]:
    """What `pack_seen` packed."""
    return msgspec.msgpack.decode(zlib.decompress(message), type=dict[str, Seen])


def has_broken(seen: Mapping[str, Seen]) -> bool:
    """Whether a rank broke a limit anywhere."""
    return any(each.broken for each in seen.values())

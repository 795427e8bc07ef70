"""Which devices a job has, and which of them an attempt gets."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Devices"]


class Devices:
    """The devices of one job on this machine, by number.

    Args:
        known: All of them: the first `ranks` begin, the rest are spares.
        ranks: How many the job wants.
        fewest: How many it needs at least.

    Attributes:
        out: Devices that are left out, each with the reason.
        bench: Devices under suspicion, the latest last: they are used only when there is no other.
    """

    def __init__(self, known: Sequence[int], ranks: int, fewest: int) -> None:
        self.known = list(known)
        self.ranks = ranks
        self.fewest = fewest
        self.out: dict[int, str] = {}
        self.bench: list[int] = []

    def choose(self, last: Sequence[int] = ()) -> list[int]:
        """The device of each rank for the next attempt; empty when there are too few.

        A rank keeps its device if it can. When a device under suspicion has to work, it gets another rank than before:
        a fault that moves with it is the device's, one that stays with the rank is not.

        Args:
            last: The device of each rank in the attempt before.
        """
        usable = [device for device in self.known if device not in self.out]
        trusted = [device for device in usable if device not in self.bench]
        count = min(self.ranks, len(usable))
        if count < self.fewest:
            return []
        chosen = (trusted + [device for device in self.bench if device in usable])[:count]
        places: list[int | None] = [device if device in chosen else None for device in last[:count]]
        places += [None] * (count - len(places))
        rest = iter([device for device in chosen if device not in places])
        result = [next(rest) if device is None else device for device in places]
        unmoved = [device for device, before in zip(result, last, strict=False) if device == before]
        if count > 1 and any(device in self.bench for device in unmoved):
            result = result[1:] + result[:1]
        return result

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

    def choose(self) -> list[int]:
        """The device of each rank for the next attempt, ascending; empty when there are too few.

        CANN refuses a visible list in another order, and MindSpore gives rank i the i-th of it.
        """
        usable = [device for device in self.known if device not in self.out]
        trusted = [device for device in usable if device not in self.bench]
        chosen = [*trusted, *(device for device in self.bench if device in usable)][: self.ranks]
        return sorted(chosen) if len(chosen) >= self.fewest else []

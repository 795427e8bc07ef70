"""What each rank saw at each site of a step, for the tier that compares ranks: four bytes a site and rank."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence

from asd.operators.ranks.exchange import Exchange
from asd.rules.readings.reading import Reading, unscaled

__all__ = ["RankFeatures"]

_WORD = 4


class RankFeatures:
    """What the ranks that hold the same tell one another of each step; all of them make the same calls.

    Args:
        exchange: All ranks, and which of them hold the same.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._near, self._groups = exchange.near, exchange.groups
        self._common: dict[tuple[bytes, ...], frozenset[str]] = {}

    def gather(self, readings: Sequence[Reading], loss_scale: float) -> dict[str, list[float]]:
        """Per checkpoint that all of them saw, what each rank saw, in the order of `Groups.members`.

        Once a step; float32, so all ranks judge the same numbers. What is another tensor on each rank is left out.

        Args:
            readings: What this rank saw.
            loss_scale: Every size is divided by it.

        Raises:
            RankLostError: A rank did not answer.
        """
        ordered = sorted(each for each in readings if not self._groups.is_apart(each.checkpoint))
        names = [reading.checkpoint for reading in ordered]
        heads = tuple(self._near.gather(zlib.crc32("\n".join(names).encode()).to_bytes(_WORD, "little"), _WORD))
        if len(set(heads)) > 1:  # as where each rank has the optimizer of some weights
            if heads not in self._common:
                told = [frozenset(word["names"]) for word in self._near.tell(names=names)]
                self._common[heads] = told[0].intersection(*told)
            ordered = [each for each in ordered if each.checkpoint in self._common[heads]]
        message = array("f", (_narrow(unscaled(each, loss_scale)) for each in ordered)).tobytes()
        rows = [array("f", other) for other in self._near.gather(message, len(message))]
        return {each.checkpoint: [row[i] for row in rows] for i, each in enumerate(ordered)}


def _narrow(size: float) -> float:
    """A size that a float32 holds; larger ones count as the largest."""
    return min(size, 3.4e38) if size < float("inf") else size

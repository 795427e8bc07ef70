"""What each rank saw at each checkpoint of a step, for the tier that compares ranks: 16 bytes a checkpoint and rank."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import mindspore as ms

from asd.measured.reading import Reading, divisor
from asd.operators.ranks.exchange import Exchange
from asd.tiers import Features

__all__ = ["comparable", "features_of_ranks"]

_ONE = struct.Struct("<3fi")
_COMPARABLE = ("stand_alone", "data_parallel")
"""Parallel modes in which all ranks hold the same network."""


def comparable() -> bool:
    """Whether all ranks hold the same network, as in data parallel."""
    return ms.get_auto_parallel_context("parallel_mode") in _COMPARABLE


def features_of_ranks(
    exchange: Exchange, readings: Sequence[Reading], loss_scale: float
) -> dict[str, list[Features]] | None:
    """Per checkpoint what each rank saw, by rank; None when the ranks did not see the same checkpoints.

    A call of all ranks, once a step; float32, so all ranks judge the same numbers.

    Args:
        exchange: The ranks.
        readings: What this rank saw.
        loss_scale: Every size is divided by it.

    Raises:
        RuntimeError: A rank did not answer, see `Exchange.gather`.
    """
    ordered = sorted(readings)
    names = [reading.checkpoint for reading in ordered]
    head = struct.pack("<I", zlib.crc32("\n".join(names).encode()))
    message = head + b"".join(
        _ONE.pack(
            *(_narrow(size / divisor(each.kind, loss_scale)) for size in (each.max_abs, each.l2, each.mean_abs)),
            int(each.non_finite > 0),
        )
        for each in ordered
    )
    told = exchange.gather(message)
    if any(other[: len(head)] != head or len(other) != len(message) for other in told):
        return None
    ranks = [[Features(*row) for row in _ONE.iter_unpack(other[len(head) :])] for other in told]
    return {name: [rank[i] for rank in ranks] for i, name in enumerate(names)}


def _narrow(size: float) -> float:
    """A size that a float32 holds; larger ones count as the largest."""
    return min(size, 3.4e38) if size < float("inf") else size

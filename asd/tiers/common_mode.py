"""What an alarm looks like across ranks, before anything is replayed: a device, the data, or the software."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from asd.verdict import Level

__all__ = ["Suspicion", "classify"]


class Suspicion(NamedTuple):
    """What is to blame, by the look of one step.

    Attributes:
        cause: `hardware`, `data`, `software`, or `unknown`; empty when nothing was flagged.
        level: How serious the step is; `WARNING` where no device may be blamed for it.
        rank: The rank to look at; None when there is not just one.
        checkpoint: Where it was flagged first; empty without a rank.
        replay: Whether making the step again would tell more.
        reason: Why, in a few words.
    """

    cause: str
    level: Level
    rank: int | None
    checkpoint: str
    replay: bool
    reason: str


def classify(
    flagged: Mapping[int, Collection[str]],
    order: Collection[str],
    ranks: int,
    outliers: Collection[int] = (),
    *,
    announced: bool = False,
) -> Suspicion:
    """Tells what an alarm looks like.

    * More than half of the ranks are flagged and none differs from the others: the learning rate, a loss spike or a
      shift of the data.
    * One rank is flagged at all checkpoints from the first on: its batch is unusual.
    * One rank is flagged and differs from the others: its device is suspect.

    Args:
        flagged: Per rank the checkpoints that its own history flagged as errors in this step.
        order: All checkpoints, in the order in which a step reaches them.
        ranks: Number of ranks.
        outliers: Ranks that `Ranks` flagged as errors in this step.
        announced: Whether the training said that this step changes something, such as the learning rate.

    >>> classify({2: ["layers.3.forward"]}, ["layers.2.forward", "layers.3.forward"], 4, [2]).cause
    'hardware'
    """
    where = {rank: set(names) for rank, names in flagged.items() if names}
    if not where and not outliers:
        return Suspicion("", Level.NORMAL, None, "", replay=False, reason="")
    if announced:
        return Suspicion("software", Level.WARNING, None, "", replay=False, reason="the training announced a change")
    if 2 * len(where) > ranks > 1 and not outliers:
        reason = f"{len(where)} of {ranks} ranks were flagged and none differs from the others"
        return Suspicion("software", Level.WARNING, None, "", replay=False, reason=reason)
    suspects = set(where) | set(outliers)
    if len(suspects) > 1:
        reason = f"{len(suspects)} of {ranks} ranks were flagged"
        return Suspicion("unknown", Level.ERROR, None, "", replay=True, reason=reason)
    (rank,) = suspects
    names = where.get(rank, set())
    first = next((name for name in order if name in names), "")
    if len(order) > 1 and names.issuperset(order):
        reason = f"rank {rank} was flagged at every checkpoint, from the first on"
        return Suspicion("data", Level.WARNING, rank, first, replay=True, reason=reason)
    if rank in outliers:
        reason = f"rank {rank} alone was flagged and differs from the others"
        return Suspicion("hardware", Level.ERROR, rank, first, replay=True, reason=reason)
    reason = f"rank {rank} alone was flagged, but does not differ from the others"
    return Suspicion("unknown", Level.ERROR, rank, first, replay=True, reason=reason)

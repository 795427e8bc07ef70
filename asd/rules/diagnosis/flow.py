"""Whose fault it was where ranks hold different parts: a wrong value goes on, and other ranks break limits too.

Ranks that hold the same compare values; between the others only the order tells. In the backward pass data flow from
the last stage of a pipeline to the first, and among the parts of a stage everything that is wrong on one of them
reaches the others by the next sum. So the origin is the rank whose first wrong value is earliest in this order, among
those that stand out from the ranks that hold the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from asd.rules.diagnosis.attribution import OUTLIER_BITS, Attribution, Seen, distances, whose_mean
from asd.rules.diagnosis.groups import Groups

__all__ = ["RankReport", "blame_among", "origin_among", "report_of"]


class RankReport(NamedTuple):
    """What a rank tells all others after those that hold the same have compared what they saw.

    Attributes:
        checkpoint: Where it broke a limit first; empty if it broke none.
        position: How many of its sites come before in the backward pass.
        distance: In bits above those that hold the same; nan where no other rank does.
        mean: The first mean over the ranks that is bad here and good on others; empty for none.
        wrong: At how many checkpoints it is wrong. What is wrong on another rank and reached this one by a sum is wrong
            there too, so of several that are alike the origin has the most.
    """

    checkpoint: str = ""
    position: int = 0
    distance: float = math.nan
    mean: str = ""
    wrong: int = 0

    @property
    def stands_out(self) -> bool:
        """Whether it is not what others that hold the same have too."""
        return math.isnan(self.distance) or self.distance >= OUTLIER_BITS


def report_of(
    rank: int,
    own: Mapping[int, Mapping[str, Seen]],
    averaged: Mapping[int, Mapping[str, Seen]],
) -> RankReport:
    """What `rank` tells the others.

    Args:
        rank: This one.
        own: Of each rank that holds the same, this one included, what it saw alone, per checkpoint.
        averaged: The same of means over ranks.
    """
    ordered = sorted(own[rank].items(), key=lambda item: item[1].order)
    mean = whose_mean(averaged)
    bad_mean = next((name for name, seen in averaged[rank].items() if seen.broken), "") if rank in mean.ranks else ""
    for position, (name, seen) in enumerate(ordered):
        if seen.broken:
            distance = distances(own, name)[rank]
            if len(own) == 2 and all(any(each.broken for each in seen.values()) for seen in own.values()):
                distance = 0.0  # each is the other's only comparison
            return RankReport(name, position, distance, bad_mean, _wrong(rank, own))
    return RankReport(mean=bad_mean)


def _wrong(rank: int, own: Mapping[int, Mapping[str, Seen]]) -> int:
    """At how many checkpoints it stands out, or breaks a limit where it can't be compared."""
    found = 0
    for name, seen in own[rank].items():
        distance = distances(own, name)[rank]
        found += seen.broken if math.isnan(distance) else distance >= OUTLIER_BITS
    return found


def origin_among(reports: Sequence[RankReport], groups: Groups) -> Attribution:
    """Names the rank whose fault it was.

    Args:
        reports: What each rank told, by rank.
        groups: Which stage each of them is.
    """
    ranks = tuple(rank for rank, report in enumerate(reports) if report.checkpoint)
    if not ranks:
        return _of_means(reports)
    outliers = [rank for rank in ranks if reports[rank].stands_out]
    if not outliers:
        reason = f"{_some(ranks)} broke a limit, but none stands out from those that hold the same"
        return Attribution(None, "", ranks, f"{reason}: the data or the software rather than a device")
    earliest = _earliest(outliers, reports, groups)
    far = max(-1.0 if math.isnan(reports[rank].distance) else reports[rank].distance for rank in earliest)
    chosen = _most([rank for rank in earliest if far < 0 or reports[rank].distance == far], reports)
    report, stage = reports[chosen[0]], groups.stages[chosen[0]]
    if len(chosen) > 1:
        reason = f"{_some(chosen)} broke a limit at {report.checkpoint} first and stand out alike"
        return Attribution(
            None, "", ranks, f"{reason}: what one of them gave reached the others before anybody looked at it"
        )
    if 0 < max(groups.stages) == stage:
        reason = f"rank {chosen[0]} broke its limit first, at the end of the pipeline"
        return Attribution(None, "", ranks, f"{reason}: the fault may be in the forward pass of an earlier stage")
    followers = tuple(rank for rank in ranks if rank != chosen[0])
    where = "no other rank holds the same" if math.isnan(report.distance) else _bits(report.distance)
    before = ", and broke its limit before the others" if followers else ""
    reason = f"rank {chosen[0]} broke its limit at {report.checkpoint}; {where}{before}"
    return Attribution(chosen[0], report.checkpoint, followers, reason)


def blame_among(reports: Sequence[RankReport], groups: Groups) -> Attribution | None:
    """Whose it was what a second run of a step did not show again.

    Args:
        reports: Of each rank the first checkpoint with something that is gone.
        groups: Which stage each of them is.

    Returns:
        None where no rank has any.
    """
    own = [rank for rank, report in enumerate(reports) if report.checkpoint]
    means = [rank for rank, report in enumerate(reports) if report.mean]
    guilty = own or [rank for rank in means if not all(reports[other].mean for other in groups.alike(rank))]
    if not guilty:
        return Attribution(None, "", (), "no gradient of a rank was suspicious") if means else None
    earliest = _most(_earliest(own, reports, groups), reports) if own else guilty
    origin = earliest[0] if len(earliest) == 1 else None
    where = {rank: reports[rank].checkpoint or reports[rank].mean for rank in guilty}
    names = ", ".join(f"rank {rank} at {checkpoint}" for rank, checkpoint in where.items())
    first = f", first on rank {origin}" if origin is not None and len(guilty) > 1 else ""
    followers = tuple(rank for rank in guilty if rank != origin)
    reason = f"what was suspicious is gone on {names}{first}"
    return Attribution(origin, where[earliest[0]], followers, reason, in_mean=not own)


def _earliest(ranks: Sequence[int], reports: Sequence[RankReport], groups: Groups) -> list[int]:
    keys = {rank: _key(reports[rank], groups.stages[rank]) for rank in ranks}
    return [rank for rank in ranks if keys[rank] == min(keys.values())]


def _most(ranks: Sequence[int], reports: Sequence[RankReport]) -> list[int]:
    most = max(reports[rank].wrong for rank in ranks)
    return [rank for rank in ranks if reports[rank].wrong == most]


def _key(report: RankReport, stage: int) -> tuple[int, int]:
    return -stage, report.position


def _of_means(reports: Sequence[RankReport]) -> Attribution:
    wrong = Seen(0, math.inf, broken=True)
    seen = {rank: {report.mean: wrong} if report.mean else {} for rank, report in enumerate(reports)}
    return whose_mean(seen)


def _bits(distance: float) -> str:
    if math.isinf(distance):
        return "it alone is not finite"
    return f"it stands {distance:.1f} bits above the median of those that hold the same"


def _some(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))

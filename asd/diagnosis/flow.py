"""Names the rank at fault among those that broke a limit in the same step."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from asd.diagnosis.attribution import Attribution, Seen, has_broken
from asd.diagnosis.groups import Groups, named

OUTLIER_BITS = 3.3
"""A value stands out from 2**3.3, about ten, times the median of the others. Healthy ranks reached 2.8 bits."""
PART = "part."  # prefix of a gradient that was summed over ranks and of which each rank holds one shard
_NOBODY = Attribution(None, "", (), "no rank broke a limit")


class RankReport(NamedTuple):
    """Report of a rank to all others, after its replica group has compared its values."""

    checkpoint: str = ""  # first checkpoint at which it broke a limit; empty if it broke none
    position: int = 0  # number of its sites that come before in the backward pass
    distance: float = math.nan  # bits above the rest of the replica group; nan without another replica
    mean: str = ""  # first mean over the ranks that is wrong here and right on others; empty for none
    # number of wrong sites. Values that a sum brings from another rank are wrong on both, so among similar ranks the
    # origin has the most
    wrong: int = 0

    @property
    def stands_out(self) -> bool:
        """Returns whether the values differ from those of its replica group."""
        return math.isnan(self.distance) or self.distance >= OUTLIER_BITS


def attribute(step: Mapping[int, Mapping[str, Seen]]) -> Attribution:
    """Names the rank at fault in one replica group.

    Args:
        step: Values seen in one step, by rank and site.

    >>> calm, wild = Seen(0, 1.0, False), Seen(0, 1e9, True)
    >>> attribute({0: {"norm": calm}, 1: {"norm": wild}, 2: {"norm": calm}}).origin
    1
    """
    values = _Values(step)
    reports = {rank: values.report(rank) if has_broken(step[rank]) else RankReport() for rank in sorted(step)}
    if len(step) == 2 and all(report.checkpoint for report in reports.values()):
        return Attribution(None, "", tuple(reports), "both of two ranks broke a limit: the rank at fault is unknown")
    if len(step) > 1:  # what cannot be compared stands out from nothing
        reports = {
            rank: report._replace(distance=0.0) if math.isnan(report.distance) else report
            for rank, report in reports.items()
        }
    return _origin(reports)


def whose_fault(
    own: Mapping[int, Mapping[str, Seen]], averaged: Callable[[], Mapping[int, Mapping[str, Seen]]]
) -> Attribution:
    """Names the rank by the local values of each, else by the means over the ranks.

    Args:
        own: Local values of one step, by rank and site.
        averaged: Returns the means by rank and site, which should agree on all ranks. They count where no rank has a
            local fault: one whose copy is wrong while others are right.
    """
    found = attribute(own)
    return found if found.ranks else whose_mean(averaged())


def whose_mean(averaged: Mapping[int, Mapping[str, Seen]]) -> Attribution:
    """Names the rank by the means alone; no rank where they are right, or wrong on all ranks alike."""
    found = attribute(averaged)
    ranks = found.ranks
    if len(ranks) in (0, len(averaged)):
        return _NOBODY
    if len(ranks) == 1:
        reason = f"rank {ranks[0]} broke its limit; only its mean is wrong: the device, or a link to it"
        return Attribution(ranks[0], found.checkpoint, (), reason, shared=True)
    # A wrong shard was passed on, and its first rank is unknown.
    reason = f"the mean is bad on {named(ranks)} and good on the others: the links between them are suspect too"
    return Attribution(None, "", ranks, reason, shared=True)


def report_of(
    rank: int, own: Mapping[int, Mapping[str, Seen]], averaged: Mapping[int, Mapping[str, Seen]]
) -> RankReport:
    """Returns the report of `rank` for the others."""
    mean = whose_mean(averaged)
    bad_mean = next((name for name, seen in averaged[rank].items() if seen.broken), "") if rank in mean.ranks else ""
    values = _Values(own)
    report = values.report(rank)
    return report._replace(mean=bad_mean, wrong=values.wrong(rank) if report.checkpoint else 0)


def origin_among(reports: Sequence[RankReport], groups: Groups) -> Attribution:
    """Names the rank at fault among ranks of several replica groups."""
    found = _origin(dict(enumerate(reports)), groups)
    if found.ranks:
        return found._replace(shared=found.origin is None)
    wrong = Seen(0, math.inf, broken=True)
    return whose_mean({rank: {each.mean: wrong} if each.mean else {} for rank, each in enumerate(reports)})


def blame_among(reports: Sequence[RankReport], groups: Groups) -> Attribution | None:
    """Names the rank whose finding a rerun of the step did not confirm.

    A rank's local gradient explains the mean. A mean that was suspicious on all ranks alike names no rank.

    Args:
        reports: Report of each rank: its first site with a finding that is gone.
        groups: Replica groups and pipeline stages of the ranks.

    Returns:
        None where no rank has such a finding.
    """
    own = [rank for rank, report in enumerate(reports) if report.checkpoint]
    means = [rank for rank, report in enumerate(reports) if report.mean]
    whole = [rank for rank in means if not reports[rank].mean.startswith(PART)]
    guilty = own or [rank for rank in whole if not all(reports[other].mean for other in groups.alike(rank))]
    if not guilty:
        reason = "no gradient of a rank was suspicious"
        return Attribution(None, "", tuple(means), reason, shared=True) if means else None
    first, doubt = _first(own, dict(enumerate(reports)), groups) if own else (guilty, "")
    origin = first[0] if len(first) == 1 and not doubt else None
    where = {rank: reports[rank].checkpoint or reports[rank].mean for rank in guilty}
    names = ", ".join(f"rank {rank} at {name}" for rank, name in where.items())
    more = f"; {doubt}" if doubt else f", first on rank {origin}" if origin is not None and len(guilty) > 1 else ""
    followers = tuple(rank for rank in guilty if rank != origin)
    # If all ranks compute the whole network, each rank's local value has a local cause.
    shared = not own or (origin is None and not groups.whole)
    return Attribution(origin, where[first[0]], followers, f"the suspicious value is normal on {names}{more}", shared)


class _Values:
    """Values of a replica group, sorted once per site for all comparisons."""

    def __init__(self, step: Mapping[int, Mapping[str, Seen]]) -> None:
        self._step = step
        self._sorted: dict[str, Sequence[float]] = {}

    def report(self, rank: int) -> RankReport:
        """Returns the first site at which a rank broke a limit, and its distance from the others there."""
        for position, (name, first) in enumerate(sorted(self._step[rank].items(), key=lambda item: item[1].order)):
            if first.broken:
                distance = self._bits_above_others(name, first.value)
                if len(self._step) == 2 and all(map(has_broken, self._step.values())):
                    distance = 0.0  # each is the other's only comparison
                return RankReport(name, position, distance)
        return RankReport()

    def wrong(self, rank: int) -> int:
        """Returns the number of sites at which a rank stands out, or broke a limit if it cannot be compared."""
        apart = [(self._bits_above_others(name, seen.value), seen.broken) for name, seen in self._step[rank].items()]
        return sum(broken if math.isnan(distance) else distance >= OUTLIER_BITS for distance, broken in apart)

    def _bits_above_others(self, name: str, value: float) -> float:
        """Returns the bits by which a rank's value exceeds the median of the others; nan without another rank."""
        if name not in self._sorted:
            self._sorted[name] = sorted(_bits(seen[name].value) for seen in self._step.values() if name in seen)
        known, bits = self._sorted[name], _bits(value)
        if len(known) == 1:
            return math.nan
        # The lower median: one of two others may be at fault, and half of its error must not reach a healthy rank.
        middle = (len(known) - 2) // 2
        median = known[middle + (bisect_left(known, bits) <= middle)]  # the rank's own value is left out
        return 0.0 if bits == median else bits - median


def _origin(reports: Mapping[int, RankReport], groups: Groups | None = None) -> Attribution:
    ranks = tuple(rank for rank, report in reports.items() if report.checkpoint)
    if not ranks:
        return _NOBODY
    outliers = [rank for rank in ranks if reports[rank].stands_out]
    if not outliers:
        reason = f"{named(ranks)} broke a limit, but none differs from its replica group"
        return Attribution(None, "", ranks, f"{reason}: the data or the software rather than a device")
    chosen, doubt = _first(outliers, reports, groups)
    if doubt:
        return Attribution(None, "", ranks, doubt)
    report = reports[chosen[0]]
    followers = tuple(rank for rank in ranks if rank != chosen[0])
    before = ", and broke its limit before the others" if followers else ""
    reason = f"rank {chosen[0]} broke its limit at {report.checkpoint}; {_distance(report.distance)}{before}"
    alike = reports if groups is None else groups.alike(chosen[0])
    compared = not math.isnan(report.distance) and set(alike).isdisjoint(followers)
    return Attribution(chosen[0], report.checkpoint, followers, reason, compared=compared)


def _first(ranks: Sequence[int], reports: Mapping[int, RankReport], groups: Groups | None) -> tuple[list[int], str]:
    """Returns the ranks where it began, and why one of them cannot be named; empty if it can."""
    stages = dict.fromkeys(reports, 0) if groups is None else dict(enumerate(groups.stages))
    earliest = min((-stages[rank], reports[rank].position) for rank in ranks)
    first = [rank for rank in ranks if (-stages[rank], reports[rank].position) == earliest]
    # A sum brings a wrong value to other shards, a little larger or smaller; replicas have no such sum.
    far = {rank: -math.inf if math.isnan(reports[rank].distance) else reports[rank].distance for rank in first}
    least = max(far.values()) - (0.0 if groups is None else OUTLIER_BITS)
    first = [rank for rank in first if far[rank] >= least]
    chosen = [rank for rank in first if reports[rank].wrong == max(reports[each].wrong for each in first)]
    if len(chosen) > 1:
        return chosen, f"{named(chosen)} broke a limit at {reports[chosen[0]].checkpoint} first and stand out alike"
    if 0 < max(stages.values()) == stages[chosen[0]]:
        reason = f"rank {chosen[0]} broke its limit first, at the end of the pipeline"
        return chosen, f"{reason}: the fault may be in the forward pass of an earlier stage"
    return chosen, ""


def _bits(value: float) -> float:
    if not math.isfinite(value):
        return math.inf
    return math.log2(value) if value > 0 else -150.0  # below the smallest float32


def _distance(bits: float) -> str:
    if math.isnan(bits):
        return "no other rank has the same shard"
    return "it alone is not finite" if math.isinf(bits) else f"it stands {bits:.1f} bits above the median of the others"

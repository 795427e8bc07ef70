"""Names the rank whose fault it was among those that broke a limit in the same step."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from asd.rules.diagnosis.attribution import Attribution, Seen, has_broken
from asd.rules.diagnosis.groups import Groups, named

OUTLIER_BITS = 3.3
"""A value stands out when it is 2**3.3, about ten times, the median of the others. Healthy ranks came to 2.8 bits."""
_NOBODY = Attribution(None, "", (), "no rank broke a limit")


class RankReport(NamedTuple):
    """What a rank tells all others after those that hold the same have compared what they saw.

    Attributes:
        checkpoint: Where it broke a limit first; empty if it broke none.
        position: How many of its sites come before in the backward pass.
        distance: In bits above those that hold the same; nan where no other rank does.
        mean: The first mean over the ranks that is bad here and good on others; empty for none.
        wrong: At how many sites it is wrong. What is wrong on another rank and reached this one by a sum is wrong there
            too, so of several that are alike the origin has the most.
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


def attribute(step: Mapping[int, Mapping[str, Seen]]) -> Attribution:
    """Names the rank among those that all hold the same.

    Args:
        step: Per rank and site what was seen in one step.

    >>> calm, wild = Seen(0, 1.0, False), Seen(0, 1e9, True)
    >>> attribute({0: {"norm": calm}, 1: {"norm": wild}, 2: {"norm": calm}}).origin
    1
    """
    values = _Values(step)
    reports = {rank: values.report(rank) if has_broken(step[rank]) else RankReport() for rank in sorted(step)}
    if len(step) == 2 and all(report.checkpoint for report in reports.values()):
        return Attribution(
            None, "", tuple(reports), "both of two ranks broke a limit: whose fault it was can't be told"
        )
    if len(step) > 1:  # what cannot be compared stands out from nothing
        reports = {
            rank: report._replace(distance=0.0) if math.isnan(report.distance) else report
            for rank, report in reports.items()
        }
    return _origin(reports, dict.fromkeys(step, 0))


def whose_fault(
    own: Mapping[int, Mapping[str, Seen]], averaged: Callable[[], Mapping[int, Mapping[str, Seen]]]
) -> Attribution:
    """Names the rank by what each saw alone, and by the means over the ranks where that shows nothing.

    Args:
        own: Per rank and site what it saw alone in one step.
        averaged: Gives the same of the means, which should be alike on all ranks. They count where no rank has a fault
            of its own: one whose copy is bad while others are not.
    """
    found = attribute(own)
    return found if found.ranks else whose_mean(averaged())


def whose_mean(averaged: Mapping[int, Mapping[str, Seen]]) -> Attribution:
    """Names the rank by the means alone: nobody's where they are good, or bad on all ranks alike."""
    found = attribute(averaged)
    ranks = found.ranks
    if len(ranks) in (0, len(averaged)):
        return _NOBODY
    if len(ranks) == 1:
        reason = f"rank {ranks[0]} broke its limit; its mean alone is bad: the device, or the way to it"
        return Attribution(ranks[0], found.checkpoint, (), reason, shared=True)
    # A bad part was passed on, and whose it was first can't be told.
    reason = f"the mean is bad on {named(ranks)} and good on the others: the ways between them are suspect too"
    return Attribution(None, "", ranks, reason, shared=True)


def report_of(
    rank: int, own: Mapping[int, Mapping[str, Seen]], averaged: Mapping[int, Mapping[str, Seen]]
) -> RankReport:
    """What `rank` tells the others."""
    mean = whose_mean(averaged)
    bad_mean = next((name for name, seen in averaged[rank].items() if seen.broken), "") if rank in mean.ranks else ""
    values = _Values(own)
    report = values.report(rank)
    return report._replace(mean=bad_mean, wrong=values.wrong(rank) if report.checkpoint else 0)


def origin_among(reports: Sequence[RankReport], groups: Groups) -> Attribution:
    """Names the rank among those that hold different parts."""
    found = _origin(dict(enumerate(reports)), dict(enumerate(groups.stages)))
    if found.ranks:
        return found._replace(shared=found.origin is None)
    wrong = Seen(0, math.inf, broken=True)
    return whose_mean({rank: {each.mean: wrong} if each.mean else {} for rank, each in enumerate(reports)})


def blame_among(reports: Sequence[RankReport], groups: Groups) -> Attribution | None:
    """Whose it was what a second run of a step did not show again.

    A rank's own gradient explains the mean, and a mean that was suspicious on all ranks alike is nobody's.

    Args:
        reports: Of each rank the first site with something that is gone.
        groups: Which stage each of them is.

    Returns:
        None where no rank has any.
    """
    own = [rank for rank, report in enumerate(reports) if report.checkpoint]
    means = [rank for rank, report in enumerate(reports) if report.mean]
    guilty = own or [rank for rank in means if not all(reports[other].mean for other in groups.alike(rank))]
    if not guilty:
        return Attribution(None, "", (), "no gradient of a rank was suspicious") if means else None
    first, doubt = guilty, ""
    if own:
        first, doubt = _first(own, dict(enumerate(reports)), dict(enumerate(groups.stages)))
    origin = first[0] if len(first) == 1 and not doubt else None
    where = {rank: reports[rank].checkpoint or reports[rank].mean for rank in guilty}
    names = ", ".join(f"rank {rank} at {name}" for rank, name in where.items())
    more = f"; {doubt}" if doubt else f", first on rank {origin}" if origin is not None and len(guilty) > 1 else ""
    followers = tuple(rank for rank in guilty if rank != origin)
    # Of ranks that all compute the whole network each one's own value is its own doing.
    shared = not own or (origin is None and not groups.whole)
    return Attribution(origin, where[first[0]], followers, f"what was suspicious is gone on {names}{more}", shared)


class _Values:
    """What ranks that hold the same saw, sorted once at each site however many ranks are compared there."""

    def __init__(self, step: Mapping[int, Mapping[str, Seen]]) -> None:
        self._step = step
        self._sorted: dict[str, Sequence[float]] = {}

    def report(self, rank: int) -> RankReport:
        """Where a rank broke a limit first, and how far it is from the others there."""
        seen = self._step[rank]
        for position, (name, first) in enumerate(sorted(seen.items(), key=lambda item: item[1].order)):
            if first.broken:
                distance = self._bits_above_others(name, first.value)
                if len(self._step) == 2 and all(map(has_broken, self._step.values())):
                    distance = 0.0  # each is the other's only comparison
                return RankReport(name, position, distance)
        return RankReport()

    def wrong(self, rank: int) -> int:
        """At how many sites a rank stands out, or broke a limit where it can't be compared."""
        found = 0
        for name, seen in self._step[rank].items():
            distance = self._bits_above_others(name, seen.value)
            found += seen.broken if math.isnan(distance) else distance >= OUTLIER_BITS
        return found

    def _bits_above_others(self, name: str, value: float) -> float:
        """How far the value of one rank is above the median of the other ranks; nan when there is no other."""
        if name not in self._sorted:
            self._sorted[name] = sorted(_bits(seen[name].value) for seen in self._step.values() if name in seen)
        known, bits = self._sorted[name], _bits(value)
        if len(known) == 1:
            return math.nan
        # The lower median: of two others one may be at fault itself, and a healthy rank must not inherit half of that.
        middle = (len(known) - 2) // 2
        median = known[middle + (bisect_left(known, bits) <= middle)]  # the rank's own value is left out
        return 0.0 if bits == median else bits - median


def _origin(reports: Mapping[int, RankReport], stages: Mapping[int, int]) -> Attribution:
    ranks = tuple(rank for rank, report in reports.items() if report.checkpoint)
    if not ranks:
        return _NOBODY
    outliers = [rank for rank in ranks if reports[rank].stands_out]
    if not outliers:
        reason = f"{named(ranks)} broke a limit, but none stands out from those that hold the same"
        return Attribution(None, "", ranks, f"{reason}: the data or the software rather than a device")
    chosen, doubt = _first(outliers, reports, stages)
    if doubt:
        return Attribution(None, "", ranks, doubt)
    report = reports[chosen[0]]
    followers = tuple(rank for rank in ranks if rank != chosen[0])
    before = ", and broke its limit before the others" if followers else ""
    reason = f"rank {chosen[0]} broke its limit at {report.checkpoint}; {_distance(report.distance)}{before}"
    return Attribution(chosen[0], report.checkpoint, followers, reason)


def _first(ranks: Sequence[int], reports: Mapping[int, RankReport], stages: Mapping[int, int]) -> tuple[list[int], str]:
    """The ranks where it began, and why none of them can be named if so."""
    keys = {}
    for rank in ranks:
        _, position, distance, _, wrong = reports[rank]
        keys[rank] = -stages[rank], position, 1.0 if math.isnan(distance) else -distance, -wrong
    chosen = [rank for rank in ranks if keys[rank] == min(keys.values())]
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
        return "no other rank holds the same"
    return "it alone is not finite" if math.isinf(bits) else f"it stands {bits:.1f} bits above the median of the others"

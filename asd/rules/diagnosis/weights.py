"""Which rank's weights are wrong: some ranks hold the same bits, and the majority of them is believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from asd.rules.diagnosis.groups import named

_NAMED = 3


class Difference(NamedTuple):
    """What was found where the weights are not alike.

    Attributes:
        odd: The ranks that differ from the majority; empty when there is no majority.
        weights: Names of the weights that are not alike, in their order.
        reason: In words, without a full stop.
    """

    odd: tuple[int, ...]
    weights: tuple[str, ...]
    reason: str


def compare(
    hashes: Sequence[Sequence[int]], names: Sequence[str], holders: Sequence[int] | None = None
) -> Difference | None:
    """Finds the ranks that differ; None when all are alike.

    Args:
        hashes: Per rank a hash of each weight.
        names: Of these weights.
        holders: The numbers of these ranks; from 0 on if not given.

    >>> compare([(7, 5), (7, 6), (7, 5)], ["dense.weight", "dense.bias"]).odd
    (1,)
    """
    ranks = [tuple(each) for each in hashes]
    if len(set(ranks)) == 1:
        return None
    (most, count), *_ = Counter(ranks).most_common(1)
    unlike = tuple(name for i, name in enumerate(names) if len({each[i] for each in ranks}) > 1)
    numbers = range(len(ranks)) if holders is None else holders
    where = f"in {unlike[0]}" if len(unlike) == 1 else f"in {len(unlike)} weights, the first is {unlike[0]}"
    if 2 * count > len(ranks):
        odd = tuple(rank for rank, each in zip(numbers, ranks, strict=True) if each != most)
        verb = "differ" if len(odd) > 1 else "differs"
        return Difference(odd, unlike, f"{named(odd)} {verb} from the other {count} {where}")
    if len(ranks) == 2:
        two = "the two ranks" if holders is None else named(tuple(holders))
        return Difference((), unlike, f"{two} differ {where}: which one is wrong can't be told")
    sizes = " and ".join(map(str, sorted(Counter(ranks).values(), reverse=True)[:_NAMED]))
    more = " and so on" if len(set(ranks)) > _NAMED else ""
    return Difference((), unlike, f"no majority of the {len(ranks)} ranks is alike ({sizes}{more}) {where}")


def compare_some(holders: Sequence[int], told: Sequence[Mapping[str, int]]) -> Difference | None:
    """Finds the ranks that differ in weights that only some ranks hold.

    Args:
        holders: These ranks.
        told: Of each rank of the job, by name, a hash of each such weight.
    """
    names = list(dict.fromkeys(name for rank in holders for name in told[rank]))
    everyone = len(holders) == len(told)
    return compare(
        [[told[rank].get(name, 0) for name in names] for rank in holders], names, None if everyone else holders
    )


def together(found: Sequence[Difference]) -> Difference | None:
    """Several of them as one; None of none."""
    if len(found) < 2:
        return found[0] if found else None
    odd = sorted({rank for each in found for rank in each.odd})
    weights = tuple(name for each in found for name in each.weights)
    return Difference(tuple(odd), weights, "; ".join(each.reason for each in found))

"""Finds ranks with wrong weights: replicas have equal bits, and their majority counts as right."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from asd.diagnosis.groups import named

_NAMED = 3


class Difference(NamedTuple):
    """Difference between the weights of replicas."""

    odd: tuple[int, ...]  # ranks that differ from the majority; empty without a majority
    weights: tuple[str, ...]  # names of the weights that differ, in their order
    reason: str  # reason as text, without a full stop


def compare(
    hashes: Sequence[Sequence[int]], names: Sequence[str], holders: Sequence[int] | None = None
) -> Difference | None:
    """Finds the ranks that differ; None when all are alike.

    Args:
        hashes: Hash of each weight, by rank.
        names: Names of these weights.
        holders: Numbers of these ranks; from 0 on if not given.

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
        return Difference((), unlike, f"{two} differ {where}: the wrong one is unknown")
    sizes = " and ".join(map(str, sorted(Counter(ranks).values(), reverse=True)[:_NAMED]))
    more = " and so on" if len(set(ranks)) > _NAMED else ""
    return Difference((), unlike, f"no majority of the {len(ranks)} ranks is alike ({sizes}{more}) {where}")


def compare_some(holders: Sequence[int], told: Sequence[Mapping[str, int]]) -> Difference | None:
    """Finds the ranks that differ in weights that only some ranks hold.

    Args:
        holders: Ranks that hold the weights.
        told: By rank of the job and by name, a hash of each such weight.
    """
    names = list(dict.fromkeys(name for rank in holders for name in told[rank]))
    everyone = len(holders) == len(told)
    return compare(
        [[told[rank].get(name, 0) for name in names] for rank in holders], names, None if everyone else holders
    )


def together(found: Sequence[Difference]) -> Difference | None:
    """Returns several differences as one; None for none."""
    if len(found) < 2:
        return found[0] if found else None
    odd = sorted({rank for each in found for rank in each.odd})
    weights = tuple(name for each in found for name in each.weights)
    return Difference(tuple(odd), weights, "; ".join(each.reason for each in found))

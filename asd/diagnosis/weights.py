"""Finds ranks with wrong weights: replicas have equal bits but for rounding, and their majority counts as right."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from asd.diagnosis.groups import named

_NAMED = 3
_LEAST = 1e-19  # does no harm; smaller numbers have no norm in float32, where their squares are 0
_DRIFT = 4.0  # times as far apart as ever before: replicas drift slowly, as they get the same gradients


class Difference(NamedTuple):
    """Difference between the weights of replicas."""

    odd: tuple[int, ...]  # ranks that differ from the majority; empty without a majority
    weights: tuple[str, ...]  # names of the weights that differ, in their order
    reason: str  # reason as text, without a full stop
    is_rounding: bool = False  # whether rounding explains it, so that no rank is odd


def compare(
    hashes: Sequence[Sequence[float]], names: Sequence[str], holders: Sequence[int] | None = None
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


def compare_some(
    holders: Sequence[int], told: Sequence[Mapping[str, list[float]]], apart: dict[str, list[float]]
) -> Difference | None:
    """Finds the ranks that differ in weights that only some ranks hold.

    Args:
        holders: Ranks that hold the weights.
        told: By rank of the job and by name, of each such weight a hash, and a sketch as of `sketches_of`.
        apart: By name, how many times as far as rounding explains replicas were apart so far, and how far
            rounding may have moved each sum lately, as a few numbers may cross 0; is updated.
    """
    names = list(dict.fromkeys(name for rank in holders for name in told[rank]))
    ranks = None if len(holders) == len(told) else holders
    columns = {name: [told[rank].get(name, [0]) for rank in holders] for name in names}
    found = compare([[told[rank].get(name, [0])[0] for name in names] for rank in holders], names, ranks)
    if found is None:
        return None
    known = {name: apart.get(name, [0.0] * max(map(len, column))) for name, column in columns.items()}
    nearest = [_nearest(column, known[name]) for name, column in columns.items()]
    if (far := compare(list(zip(*nearest, strict=True)), names, ranks)) is not None:
        return far
    for name, column in columns.items():
        now = zip(column[0][1 + len(column[0]) // 2 :], known[name][1:], strict=False)
        times = max(known[name][0], *(_times(column[0], each, known[name]) for each in column))
        apart[name] = [times, *(max(room, last / 2) for room, last in now)]
    return found._replace(odd=(), reason=f"{found.reason}, by no more than rounding explains", is_rounding=True)


def _nearest(column: Sequence[list[float]], known: list[float]) -> list[int]:
    """Returns for each replica the first one that is near it."""
    most = max(1.0, _DRIFT * known[0])
    return [next(i for i, each in enumerate(column) if _times(each, one, known) <= most) for one in column]


def _times(one: list[float], other: list[float], known: list[float]) -> float:
    """Returns how many times as far as rounding explains two replicas are apart; infinite where one is not finite."""
    if one[0] == other[0]:  # of numbers that are not finite the sums may not be equal to themselves
        return 0.0
    half = 1 + len(one) // 2
    five = zip(one[1:half], other[1:half], one[half:], other[half:], known[1:], strict=False)
    # Of two norms the smaller one: that of a damaged replica may be infinite.
    sizes = [abs(a - b) / max(min(room, more), last, _LEAST) for a, b, room, more, last in five]
    return max(sizes) if sizes and all(size <= inf for size in sizes) else inf


def together(found: Sequence[Difference]) -> Difference | None:
    """Returns several differences as one; None for none."""
    if len(found) < 2:
        return found[0] if found else None
    found = [each for each in found if not each.is_rounding] or found
    odd = sorted({rank for each in found for rank in each.odd})
    weights = tuple(name for each in found for name in each.weights)
    return Difference(tuple(odd), weights, "; ".join(each.reason for each in found), found[0].is_rounding)

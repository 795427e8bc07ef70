"""Which rank's weights are wrong: data-parallel ranks hold the same bits, and the majority is believed.

The ranks compare a hash of each weight. One that differs was damaged on its rank, in memory or by the optimizer: the
gradients are the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Difference", "compare"]

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


def compare(hashes: Sequence[Sequence[int]], names: Sequence[str]) -> Difference | None:
    """Finds the ranks that differ; None when all are alike.

    Args:
        hashes: Per rank a hash of each weight.
        names: Of these weights.

    >>> compare([(7, 5), (7, 6), (7, 5)], ["dense.weight", "dense.bias"]).odd
    (1,)
    """
    ranks = [tuple(each) for each in hashes]
    if len(set(ranks)) == 1:
        return None
    (most, count), *_ = Counter(ranks).most_common(1)
    unlike = tuple(name for i, name in enumerate(names) if len({each[i] for each in ranks}) > 1)
    where = f"in {unlike[0]}" if len(unlike) == 1 else f"in {len(unlike)} weights, the first is {unlike[0]}"
    if 2 * count > len(ranks):
        odd = tuple(rank for rank, each in enumerate(ranks) if each != most)
        verb = "differ" if len(odd) > 1 else "differs"
        return Difference(odd, unlike, f"{_ranks(odd)} {verb} from the other {count} {where}")
    if len(ranks) == 2:
        return Difference((), unlike, f"the two ranks differ {where}: which one is wrong can't be told")
    sizes = " and ".join(map(str, sorted(Counter(ranks).values(), reverse=True)[:_NAMED]))
    more = " and so on" if len(set(ranks)) > _NAMED else ""
    return Difference((), unlike, f"no majority of the {len(ranks)} ranks is alike ({sizes}{more}) {where}")


def _ranks(ranks: tuple[int, ...]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))

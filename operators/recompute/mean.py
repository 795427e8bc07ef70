"""Means over ranks that are checked: what a `DistributedGradReducer` returns against what all ranks gave it.

Before the reducer each rank sums its own gradients, in blocks; these sums go through an all-reduce of their own; behind
the reducer the sums of the means are compared with them. The gradients pass as they are, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.communication import get_group_size
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812
from mindspore.ops.primitive import constexpr

from asd.operators.measure.tap import hidden
from asd.operators.private.class_swap import put_on
from asd.operators.table.site import Site
from asd.operators.table.slots import table
from asd.rules.readings.reading import MEAN

__all__ = ["check_means"]

_BLOCK = 65536
"""Elements under one sum."""
_NUMBERS = 3
"""That a rank tells of a block: the sum, the sum of magnitudes, and 1 where it was computed."""
_UNIT = 2.0**-24  # of a number in float32
_SMALLEST = 2.0**-126
_LANE = 256  # numbers that an operator sums at once: its sum may be off by so many units, in whatever order it adds


def check_means(reducer: nn.Cell, parameters: Sequence[Any]) -> list[Site]:
    """Checks what `reducer` returns, once; it is not compiled yet.

    Args:
        reducer: A `DistributedGradReducer` for the gradients of `parameters`.
        parameters: Those of the optimizer.

    Returns:
        The checkpoints, `averaged.<parameter>.checksum`; none for a parameter whose gradient is not reduced, or where a
        class derived from the reducer does something of its own, which need not be a mean.
    """
    check = getattr(reducer, "asd_mean_check", None)
    if check is not None:
        return list(check.sites)
    chosen = [
        (i, weight)
        for i, (weight, reduced) in enumerate(zip(parameters, reducer.allreduce_filter, strict=True))
        if reduced and weight.size > 0
    ]
    if not chosen or not _makes_means(type(reducer)):
        return []
    base = type(reducer)

    class Checked(base):  # type: ignore[misc, valid-type]
        def construct(self, gradients, *args):
            told = self.asd_mean_check.tell(gradients)
            means = super().construct(F.depend(gradients, told), *args)
            return F.depend(means, self.asd_mean_check.compare(means, told))

    check = reducer.asd_mean_check = _Means(reducer, chosen)
    put_on(reducer, Checked)
    return list(check.sites)


def _makes_means(kind: type) -> bool:
    """Whether nobody but MindSpore, and checks that change nothing, says what it returns."""
    above = kind.__mro__[: kind.__mro__.index(nn.DistributedGradReducer)]
    return all("construct" not in vars(each) or "asd_original" in vars(each) for each in above)


class _Means(nn.Cell):
    """The means of one reducer, checked in every step, in float32.

    Args:
        reducer: The reducer.
        chosen: Place and parameter of each that is checked.

    Attributes:
        sites: The checkpoints.
        places: Which gradient each of them is.
    """

    def __init__(self, reducer: nn.Cell, chosen: Sequence[tuple[int, Any]]) -> None:
        super().__init__(auto_prefix=False)
        self.places = tuple(i for i, _ in chosen)
        self.sites = tuple(table().new_site(f"averaged.{weight.name}.checksum", MEAN) for _, weight in chosen)
        for site in self.sites:
            site.claimed = True
        group = (reducer.op_list[0] if reducer.split_fusion else reducer.allreduce).group
        self.ranks = int(get_group_size(group))
        self.factor = float(reducer.degree.asnumpy()) if reducer.mean else 1.0
        self.sum_over_ranks = P.AllReduce("sum", group)
        self.slots = hidden(table().worst, table().tallies)
        self.indices = tuple(Tensor([site.slot], ms.int32) for site in self.sites)
        self.sum, self.largest, self.abs = P.ReduceSum(), P.ReduceMax(), P.Abs()
        self.concat, self.stack = P.Concat(), P.Stack(1)
        self.finite, self.select = P.IsFinite(), P.Select()
        self.keep_worst, self.add = P.ScatterMax(), P.ScatterAdd()
        self.none, self.wrong = Tensor([0.0], ms.float32), Tensor([3e38], ms.float32)
        # Two stages of sums before the reducer and two behind it.
        self.roundings = (2 * self.ranks + 4 + 4 * _LANE) * _UNIT

    def tell(self, gradients):
        """What all ranks tell of their gradients: per block the sum, that of magnitudes, and who tells."""
        told = ()
        for i in range(len(self.places)):
            lanes = _lanes(gradients[self.places[i]])
            sums, magnitudes = self.of_blocks(lanes), self.of_blocks(self.abs(lanes))
            told = (*told, self.stack((sums, magnitudes, F.ones_like(sums))).reshape((-1,)))  # type: ignore[assignment]
        return self.sum_over_ranks(self.concat(told))

    def compare(self, means, told):
        """A number that depends on the comparison."""
        worst, tallies = self.slots()
        at, done = 0, self.none
        for i in range(len(self.places)):
            mean = means[self.places[i]]
            sums = self.of_blocks(_lanes(mean))
            count = sums.shape[0]
            numbers = told[at : at + _NUMBERS * count].reshape((count, _NUMBERS))
            at = at + _NUMBERS * count
            magnitudes = self.factor * numbers[:, 1]
            largest = _largest(mean.dtype)
            bound = magnitudes * _relative(mean.dtype, self.roundings)
            bound = bound + _underflow(mean.dtype, min(mean.size, _BLOCK), self.ranks)
            scores = self.abs(sums - self.factor * numbers[:, 0]) / bound
            scores = self.select(self.finite(scores), scores, F.ones_like(scores) * self.wrong)
            # Else what a rank gave is not finite, or so large that its sum may not be; or not all ranks told.
            judged = F.logical_and(numbers[:, 1] < 1.7e38, magnitudes < largest / 2)
            judged = F.cast(F.logical_and(judged, numbers[:, 2] == self.ranks), ms.float32)
            score = self.largest(self.select(judged > 0, scores, F.zeros_like(scores))).reshape((1,))
            kept = self.keep_worst(worst, self.indices[i], score)
            added = self.add(tallies, self.indices[i], self.largest(judged).reshape((1,)))
            done = F.depend(F.depend(added, kept), done)
        return done

    def of_blocks(self, lanes):
        """The sums of blocks of 256 lanes."""
        sums = _filled(self.sum(lanes, 1))
        return self.sum(sums, 1)


def _lanes(x):
    """In float32, of shape (lanes, 256), filled up with zeros."""
    return _filled(F.cast(x, ms.float32).reshape((-1,)))


def _filled(flat):
    if flat.shape[0] % _LANE > 0:
        flat = P.Pad(((0, _LANE - flat.shape[0] % _LANE),))(flat)
    return flat.reshape((-1, _LANE))


def _largest(dtype):
    """The largest number of a type."""
    if dtype == ms.float16:
        return 65504.0
    return 3.38e38 if dtype == ms.bfloat16 else 3.4e38


@constexpr
def _relative(dtype, roundings):
    """What rounding adds relative to an element."""
    if dtype == ms.float16:
        return roundings + 2.0**-11
    return roundings + 2.0**-8 if dtype == ms.bfloat16 else roundings


@constexpr
def _underflow(dtype, elements, ranks):
    """What it adds beside that; a tensor, for it is small, see `asd.operators.recompute.score`."""
    of_type = 2.0**-24 if dtype == ms.float16 else _SMALLEST
    return Tensor(elements * ((ranks + 2) * _SMALLEST + of_type), ms.float32)

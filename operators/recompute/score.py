"""How a check that is made of MindSpore operators tells its score."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.mixed_precision import CheckCell

__all__ = ["WriteScore", "rounding_to"]


class WriteScore(CheckCell):
    """Writes a score into a slot, when it is due; returns a number that depends on it."""

    def __init__(self, slot: int) -> None:
        super().__init__()
        self.index, self.none = Tensor([slot], ms.int32), Tensor([0.0], ms.float32)
        self.select, self.gather = P.Select(), P.Gather()
        self.keep_worst, self.add = P.ScatterMax(), P.ScatterAdd()

    def construct(self, score, judged, max_abs, calls, due):
        """Both of shape (1,): the score, and 1 where it says something, else 0."""
        counts = self.gather(due, self.index, 0) * judged
        done = self.keep_worst(max_abs, self.index, self.select(judged > 0, score, self.none) * counts)
        return F.depend(self.add(calls, self.index, counts), done)


def rounding_to(dtype):
    """What rounding to a type adds relative to a number, and beside it."""
    if dtype == ms.bfloat16:
        return 2.0**-7, 2.0**-122
    if dtype == ms.float16:
        return 2.0**-10, 2.0**-23
    return 2.0**-23, 2.0**-122

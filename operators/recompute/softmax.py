"""A softmax over the last axis that is checked by computing it again: forward and backward."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.recompute.call import CheckedCall
from asd.operators.recompute.score import ResultCheck, WriteScore, rounding_to, underflow_in
from asd.operators.table.site import Site
from asd.rules.readings.reading import SOFTMAX

__all__ = ["checked_softmax"]

_UNIT = 2.0**-24
_WIDER = 4.0
"""Than float64 would need: all is computed in float32."""
_LOWEST, _NOTHING = Tensor(-80.0, ms.float32), Tensor(1e-33, ms.float32)


def checked_softmax(op: Any, name: str) -> CheckedCall:
    """`op(x)` with its checks.

    Args:
        op: A `Softmax` over the last axis.
        name: Name of the place.
    """
    return CheckedCall(op, name, SOFTMAX, check=_SoftmaxCheck, parts=(0, 1), unary=True)


class _SoftmaxCheck(ResultCheck):
    """Judges by computing again in float32; what is not finite is not judged."""

    def __init__(self, site: Site, part: int) -> None:
        super().__init__(site)
        self.part, self.write = part, WriteScore(site.slot)
        self.most, self.largest, self.abs = P.ReduceMax(keep_dims=True), P.ReduceMax(), P.Abs()
        self.sum, self.sum_all, self.finite = P.ReduceSum(keep_dims=True), P.ReduceSum(), P.IsFinite()
        self.exp, self.maximum = P.Exp(), P.Maximum()

    def construct(self, a, b, result, worst, tallies, due):
        """A number that depends on all that was written."""
        score, judged = self.judge(a, b, result)
        return self.write(score.reshape((1,)), F.cast(judged, ms.float32).reshape((1,)), worst, tallies, due)

    def judge(self, a, b, result):
        """The worst residual as a multiple of its tolerance, and whether it says something."""
        unit, step = rounding_to(result.dtype), underflow_in(result.dtype)
        coarse = 0 if a.dtype == ms.float32 else unit
        rounding = _WIDER * _UNIT * (16 + a.shape[-1] / 2)
        a, b, result = F.cast(a, ms.float32), F.cast(b, ms.float32), F.cast(result, ms.float32)
        if self.part == 0:
            most = self.most(a, -1)
            below = self.maximum(a - most, _LOWEST)
            terms = self.exp(below)
            expected = terms / self.sum(terms, -1)
            off = (_WIDER * 2.0**-20 + 2 * coarse) * self.abs(below) + coarse * self.abs(most)
            off = off + self.sum(expected * off, -1) + _WIDER * 2.0**-17 + rounding + 2 * coarse
            tolerance = expected * off + _NOTHING
        else:
            # In other steps than MindSpore's own gradient, which a compiler would take for these.
            terms = (a * 2) * b
            total = self.sum(terms, -1) / 2
            expected = terms / 2 - a * total
            off = (_WIDER * 4 * _UNIT + 2 * coarse) * (self.abs(b) + self.abs(total))
            tolerance = self.abs(a) * (off + (rounding + 2 * coarse) * self.sum(self.abs(terms), -1) / 2)
        tolerance = tolerance + unit * self.abs(expected) + 16 * step
        score = self.largest(self.abs(result - expected) / tolerance)
        return score, self.finite(self.sum_all(result * 0) + self.sum_all(expected * 0) + self.sum_all(tolerance * 0))

"""A lookup of rows, such as an embedding's, that is checked: rows by their bits, the gradient of the table by sums."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.recompute.call import CheckedCall
from asd.operators.recompute.score import (
    SMALLEST,
    ResultCheck,
    WriteScore,
    deviation,
    rounding_to,
    signs_of,
    underflow_in,
)
from asd.operators.table.site import Site
from asd.rules.readings.reading import LOOKUP

__all__ = ["checked_lookup"]


def checked_lookup(op: Any, name: str) -> CheckedCall:
    """`op(table, ids, 0)` with its checks.

    Args:
        op: A `Gather`.
        name: Name of the place.
    """
    return CheckedCall(_Rows(op), name, LOOKUP, check=_LookupCheck, parts=(0, 1))


class _Rows:
    """The operator along the first axis."""

    __ms_class__ = True

    def __init__(self, op: Any) -> None:
        self.op = op

    def __call__(self, table, ids):
        return self.op(table, ids, 0)


class _LookupCheck(ResultCheck):
    """Judges a lookup by another operator that does the same, or the gradient of a table by signed sums of its columns.

    A row that is not finite is not judged, nor a gradient: tier `finite` sees it.
    """

    def __init__(self, site: Site, part: int) -> None:
        super().__init__(site)
        self.part, self.write = part, WriteScore(site.slot)
        self.again, self.rows = P.GatherNd(), P.Gather()
        self.abs, self.sum, self.largest, self.finite = P.Abs(), P.ReduceSum(), P.ReduceMax(), P.IsFinite()
        self.maximum = P.Maximum()

    def construct(self, a, b, result, worst, tallies, due):
        """A number that depends on all that was written."""
        score, judged = self.judge_rows(a, b, result) if self.part == 0 else self.judge_sums(a, b, result)
        return self.write(score.reshape((1,)), F.cast(judged, ms.float32).reshape((1,)), worst, tallies, due)

    def judge_rows(self, table, ids, y):
        """0, or 1 and the number of elements that are wrong; and whether all are finite."""
        again = F.cast(self.again(table, ids.reshape((-1, 1))), ms.float32).reshape((-1,))
        y = F.cast(y, ms.float32).reshape((-1,))
        wrong = self.sum(F.cast(again != y, ms.float32))
        return wrong + F.cast(wrong > 0, ms.float32), self.finite(self.sum(again * 0))

    def judge_sums(self, ids, dy, found):
        """The worst residual as a multiple of its tolerance, and whether all elements are finite."""
        unit, step = rounding_to(found.dtype), underflow_in(found.dtype)
        rows, tokens = found.shape[0], ids.size
        dy, found = F.cast(dy, ms.float32).reshape((tokens, -1)), F.cast(found, ms.float32).reshape((rows, -1))
        judged = self.finite(self.sum(dy * 0) + self.sum(found * 0))
        by = self.maximum(self.largest(self.abs(dy)), SMALLEST)
        dy, found = dy / by, found / by
        signs = signs_of(rows)
        of_token = self.rows(signs, ids.reshape((-1,)), 0)
        residual = self.abs(self.sum(found * signs, 0) - self.sum(dy * of_token, 0))
        squares, of_result = self.sum(dy * dy, 0), self.sum(found * found, 0)
        # Each addition is rounded to the type of the table.
        tolerance = deviation(squares, of_result, unit, terms=tokens, count=rows, sum_unit=unit / 2)
        return self.largest(residual / (tolerance + 16 * tokens * step / by)), judged

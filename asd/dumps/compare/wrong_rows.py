"""Which rows are wrong.

The rule of tensors, in its order:

    1. `No`  when Cosine < 0.99 and MaxAbsErr > 0.001
    2. `No`  when Cosine < 0.9
    3. `No`  when MaxAbsErr > 1
    4. `Yes` otherwise

A metric that there is none for (the cosine of a single element) breaks no rule. A slot that one side lacks, or with
another shape, is `Unmatched` and never passes.
"""

from __future__ import annotations

import math

from asd.dumps.compare.metrics import NOT_A_NUMBER
from asd.dumps.compare.rows import Row

__all__ = ["BAD", "UNMATCHED", "judge"]

UNMATCHED = "Unmatched"
BAD = {"No", "Different", "Warning", UNMATCHED}
"""The verdicts that ask for a look."""


def judge(row: Row, mode: str) -> str:
    """The verdict on a row: `Yes` or `No` of tensors, `pass` or `Warning` of statistics, `Different` of CRCs.

    `None` says that there is nothing to judge by: a missing tensor, or equal scalars.

    Args:
        row: What was compared.
        mode: `tensor`, `md5` or `statistics`.
    """
    if _is_unmatched(row):
        return UNMATCHED
    if mode == "tensor":
        return _judge_tensor(row)
    if mode == "md5" and row.basis == "crc":
        return "pass" if row.same else "Different"
    if row.same is None:
        return "None"
    if row.basis == "value":
        return "pass" if row.same else "Different" if mode == "md5" else "Warning"
    return "Warning" if _statistics_differ(row) else "pass"


def _is_unmatched(row: Row) -> bool:
    return (
        row.tested is None or row.trusted is None or row.tested.shape != row.trusted.shape
        or (row.tested.scalar is None) != (row.trusted.scalar is None)
    )  # fmt: skip


def _judge_tensor(row: Row) -> str:
    metrics = row.metrics
    if metrics is None or (row.basis == "value" and row.same):
        return "None"
    if metrics.max_abs == NOT_A_NUMBER or row.basis == "value":
        return "No"
    if not isinstance(metrics.max_abs, float):
        return "None"
    # One norm alone is 0: the directions have nothing in common.
    cosine = metrics.cosine if isinstance(metrics.cosine, float) else 0.0 if metrics.cosine == "Nan" else 1.0
    wrong = (cosine < 0.99 and metrics.max_abs > 0.001) or cosine < 0.9 or metrics.max_abs > 1
    return "No" if wrong else "Yes"


def _statistics_differ(row: Row) -> bool:
    """|n - b| / (|max(n, b)| + 1e-10) > 0.5 for any of maximum, minimum, mean and norm."""
    assert row.tested is not None
    assert row.trusted is not None
    for n, b in zip(row.tested.values, row.trusted.values, strict=True):
        if n is None or b is None or n == b:
            continue
        if not (math.isfinite(n) and math.isfinite(b)):
            if not (math.isnan(n) and math.isnan(b)):
                return True
        elif abs(n - b) / (abs(max(n, b)) + 1e-10) > 0.5:
            return True
    return False

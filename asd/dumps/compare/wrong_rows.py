"""Which rows are wrong: the classic rule by default, the newer graded rules on request.

The classic rule of tensors, in its order:

    1. `No`  when Cosine < 0.99 and MaxAbsErr > 0.001
    2. `No`  when Cosine < 0.9
    3. `No`  when MaxAbsErr > 1
    4. `Yes` otherwise

A metric that there is none for (the cosine of a single element) breaks no rule. A slot that one side lacks, or with
another shape, is `Unmatched` under every rule and never passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from asd.dumps.compare.metrics import NOT_A_NUMBER
from asd.dumps.compare.rows import Row, same_dtype

__all__ = ["BAD", "RULES", "UNMATCHED", "classic", "graded"]

UNMATCHED = "Unmatched"
BAD = {"No", "Different", "Warning", "error", "warning", UNMATCHED}
"""The verdicts that ask for a look."""

_NEVER_JUDGED = {
    "empty",
    "empty_like",
    "empty_with_format",
    "new_empty",
    "new_empty_strided",
    "numpy",
    "to",
    "__setitem__",
}
_INPUT_IS_NO_INPUT = {"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"}


def classic(rows: Sequence[Row], mode: str) -> None:
    """Judges the rows of one call: `Yes` and `No` of tensors, `pass` and `Warning` of statistics, `Different` of CRCs.

    `None` says that there is nothing to judge by: a missing tensor, or equal scalars.
    """
    for row in rows:
        row.verdict = _classic_row(row, mode)


def _classic_row(row: Row, mode: str) -> str:
    if _is_unmatched(row):
        return UNMATCHED
    if mode == "tensor":
        return _classic_tensor(row)
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


def _classic_tensor(row: Row) -> str:
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


def graded(rows: Sequence[Row], mode: str) -> None:
    """Judges the rows of one call by the newer rules: `pass`, `warning`, `error`.

    The rule of the share of elements within a thousandth compares the outputs with 0.1, as the program does whose rules
    these are; its manual says 0.6.
    """
    for row in rows:
        row.verdict = "pass"
    if rows and _operator(rows[0]) in _NEVER_JUDGED:
        for row in rows:
            row.verdict = UNMATCHED if _is_unmatched(row) else "pass"
        return
    for row in rows:
        _grade_alone(row, mode)
    _grade_by_inputs(rows, mode)


def _grade_alone(row: Row, mode: str) -> None:
    if _is_unmatched(row):
        row.verdict = UNMATCHED
        return
    assert row.tested is not None
    assert row.trusted is not None
    ours, theirs = row.tested, row.trusted
    if row.basis == "value" and not row.same:
        _mark(row, "error", row.message)
    if not same_dtype(ours.dtype, theirs.dtype):
        _mark(row, "error", f"the types are {ours.dtype} and {theirs.dtype}")
    if None not in (ours.requires_grad, theirs.requires_grad) and ours.requires_grad != theirs.requires_grad:
        _mark(row, "error", "requires_grad differs")
    if mode == "md5" and row.basis == "crc" and not row.same:
        _mark(row, "error", "the CRC32 differs")
    if any(_bad(n) and not _bad(b) for n, b in zip(ours.values, theirs.values, strict=True)):
        _mark(row, "error", "Inf or NaN in the run under test only")


def _grade_by_inputs(rows: Sequence[Row], mode: str) -> None:
    output = next((row for row in rows if row.state == "output" and not _is_unmatched(row)), None)
    inputs = [row for row in rows if row.state in ("input", "parameters") and not _is_unmatched(row)]
    if output is None or not inputs or _operator(output) in _INPUT_IS_NO_INPUT:
        return
    if mode == "tensor":
        _grade_tensors(inputs, output)
    elif mode == "statistics":
        _grade_norms(inputs, output)


def _grade_tensors(inputs: Sequence[Row], output: Row) -> None:
    least, share = _least(inputs, "thousandth"), _metric(output, "thousandth")
    if least is not None and share is not None and least > 0.9 and share < 0.1:
        _mark(output, "error", f"inputs within a thousandth: {least:.3g} of the elements, output: {share:.3g}")
    least, cosine = _least(inputs, "cosine"), _metric(output, "cosine")
    if least is not None and cosine is not None and least > 0.9 and least - cosine > 0.1:
        _mark(output, "warning", f"the cosine falls from {least:.6g} to {cosine:.6g}")


def _grade_norms(inputs: Sequence[Row], output: Row) -> None:
    errors = [error for row in inputs if (error := _norm_error(row)) is not None]
    error = _norm_error(output)
    if not errors or error is None:
        return
    largest = max(errors)
    message = f"the norm is off by {largest:.3g} in the inputs, by {error:.3g} in the output"
    if largest < 0.1 and error > 0.5:
        _mark(output, "error", message)
    elif error > (10 * largest if largest else 0.1):
        _mark(output, "warning", message)


def _least(rows: Sequence[Row], name: str) -> float | None:
    return min((value for row in rows if (value := _metric(row, name)) is not None), default=None)


def _mark(row: Row, verdict: str, message: str) -> None:
    if row.verdict != "error":
        row.verdict = verdict
    row.message = f"{row.message}; {message}" if row.message and message != row.message else message


def _metric(row: Row, name: str) -> float | None:
    value = getattr(row.metrics, name, None)
    return value if isinstance(value, float) else None


def _norm_error(row: Row) -> float | None:
    """|n - b| / |b| of the norms."""
    if row.tested is None or row.trusted is None or row.tested.scalar is not None:
        return None
    n, b = row.tested.values[3], row.trusted.values[3]
    if n is None or b is None or not (math.isfinite(n) and math.isfinite(b)):
        return None
    return 0.0 if n == b else abs(n - b) / abs(b) if b else math.inf


def _bad(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _operator(row: Row) -> str:
    """The bare name of the operator, such as `add` of `Mint.add.0.forward.input.0`."""
    parts = (row.name if row.tested is not None else row.trusted_name).split(".")
    return parts[1] if len(parts) > 2 else ""


RULES: dict[str, Callable[[Sequence[Row], str], None]] = {"classic": classic, "graded": graded}
"""The rules by name."""

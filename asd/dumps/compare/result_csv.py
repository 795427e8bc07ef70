"""The tables of results, with the columns that other programs read.

Three kinds of dumps give three frames of columns: tensors, statistics, CRCs. The older text dumps have their own.
Numbers are rounded here as those programs do it: to 12 decimals, a cosine above 0.9999 to 6. JSON keeps every digit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from asd.dumps.compare.rows import ComparedRow
from asd.dumps.formats.slots import Slot

__all__ = ["ResultTable"]

_NAMES = ["NPU Name", "Bench Name"]
_BASIC = [*_NAMES, "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape"]
_GRAD = ["NPU Requires_grad", "Bench Requires_grad"]
_TENSOR = [
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
]
_STATISTICS = [
    "Max diff",
    "Min diff",
    "Mean diff",
    "L2norm diff",
    "MaxRelativeErr",
    "MinRelativeErr",
    "MeanRelativeErr",
    "NormRelativeErr",
]
_VALUES = [f"{side} {what}" for side in ("NPU", "Bench") for what in ("max", "min", "mean", "l2norm")]
_PTDBG = [
    *_NAMES,
    "NPU Tensor Dtype",
    "Bench Tensor Dtype",
    "NPU Tensor Shape",
    "Bench Tensor Shape",
    "Cosine",
    "MaxAbsErr",
    "NPU max",
    "NPU min",
    "NPU mean",
    "Bench max",
    "Bench min",
    "Bench mean",
    "Accuracy Reached or Not",
    "Err_message",
]
_NONE = "N/A"
_FORMULA = "=+-@\t\r"


class ResultTable:
    """How rows become lines of a table.

    Args:
        mode: `tensor`, `statistics` or `md5`.
        ptdbg: Whether the columns are those of the older text dumps.
        stacks: The call stack by name for the column of stacks; None for no such column.
    """

    def __init__(self, mode: str, *, ptdbg: bool = False, stacks: dict[str, str] | None = None) -> None:
        self._mode, self._stacks = mode, stacks
        self._ptdbg = ptdbg
        verdict = "Accuracy Reached or Not" if mode == "tensor" else "Result"
        middle = {
            "tensor": [*_TENSOR, *_VALUES],
            "statistics": [*_STATISTICS, *_VALUES],
            "md5": ["NPU MD5", "BENCH MD5"],
        }[mode]
        self.header = (
            list(_PTDBG)
            if ptdbg
            else [
                *_BASIC,
                *_GRAD,
                *middle,
                "Requires_grad Consistent",
                verdict,
                "Err_message",
                *(["NPU_Stack_Info"] if stacks is not None else []),
                *(["Data_name"] if mode == "tensor" else []),
            ]
        )

    def line(self, row: ComparedRow, entry: str, *, first: bool) -> list[Any]:
        """One line.

        Args:
            row: The row.
            entry: The call it belongs to, for its stack.
            first: Whether it is the call's first row, the only one with the stack.
        """
        if self._ptdbg:
            return self._ptdbg_line(row)
        middle: Callable[[ComparedRow], list[Any]] = {
            "tensor": self._tensor,
            "statistics": self._statistics,
            "md5": self._md5,
        }[self._mode]
        cells = [
            *self._basic(row),
            *(_grad(slot) for slot in (row.tested, row.trusted)),
            *middle(row),
            _consistent(row),
            row.verdict,
            row.message,
        ]
        if self._stacks is not None:
            cells.append(self._stacks.get(entry, _NONE) if first else "None")
        if self._mode == "tensor":
            cells.append(
                str([slot.data_name if slot and slot.data_name else "-1" for slot in (row.tested, row.trusted)])
            )
        return [_safe(cell) for cell in cells]

    def _ptdbg_line(self, row: ComparedRow) -> list[Any]:
        values = [value for slot in (row.tested, row.trusted) for value in _values(slot)[:3]]
        metrics = (
            [_NONE, _NONE] if row.metrics is None else [_cosine(row.metrics.cosine), _rounded(row.metrics.max_abs)]
        )
        return [_safe(cell) for cell in [*self._basic(row), *metrics, *values, row.verdict, row.message]]

    @staticmethod
    def _basic(row: ComparedRow) -> list[Any]:
        return [
            row.name,
            row.trusted_name,
            *(slot.dtype if slot else _NONE for slot in (row.tested, row.trusted)),
            *(str(list(slot.shape)) if slot else _NONE for slot in (row.tested, row.trusted)),
        ]

    @staticmethod
    def _tensor(row: ComparedRow) -> list[Any]:
        m = row.metrics
        found = (
            [_NONE] * 6
            if m is None
            else [
                _cosine(m.cosine),
                *map(_rounded, (m.euclidean, m.max_abs, m.max_relative, m.thousandth, m.five_thousandths)),
            ]
        )
        return [*found, *_values(row.tested), *_values(row.trusted)]

    @staticmethod
    def _statistics(row: ComparedRow) -> list[Any]:
        ours, theirs = _values(row.tested), _values(row.trusted)
        pairs = list(zip(ours, theirs, strict=True))
        return [*(_difference(n, b) for n, b in pairs), *(_relative(n, b) for n, b in pairs), *ours, *theirs]

    @staticmethod
    def _md5(row: ComparedRow) -> list[Any]:
        return [_crc(slot) for slot in (row.tested, row.trusted)]


def _crc(slot: Slot | None) -> str:
    if slot is not None and slot.scalar is not None:
        return f"{zlib.crc32(slot.scalar.encode(errors='replace')):08x}"
    return _NONE if slot is None or slot.md5 is None else slot.md5


def _values(slot: Slot | None) -> list[Any]:
    return [_NONE] * 4 if slot is None else [_NONE if value is None else value for value in slot.values]


def _numbers(n: object, b: object) -> bool:
    return all(isinstance(value, (int, float)) for value in (n, b))


def _difference(n: Any, b: Any) -> Any:
    return float(n) - float(b) if _numbers(n, b) else _NONE


def _relative(n: Any, b: Any) -> str:
    if not _numbers(n, b) or b == 0:
        return "0.0%" if _numbers(n, b) and n == b else _NONE
    return f"{abs((float(n) - float(b)) / float(b)) * 100}%"


def _rounded(value: float | str) -> float | str:
    return round(value, 12) if isinstance(value, float) else value


def _cosine(value: float | str) -> float | str:
    if not isinstance(value, float):
        return value
    return round(value, 6) if value > 0.9999 else round(value, 12)


def _grad(slot: Slot | None) -> Any:
    return _NONE if slot is None or slot.requires_grad is None else slot.requires_grad


def _consistent(row: ComparedRow) -> Any:
    return _NONE if None in (row.tested, row.trusted) else _grad(row.tested) == _grad(row.trusted)


def _safe(cell: Any) -> Any:
    """A text of a file that a spreadsheet would take for a formula is told from one by a quote."""
    if type(cell) is str and cell[:1] in _FORMULA and cell:
        return f"'{cell}"
    return cell

"""The table of results, with the columns that other programs read: of tensors, of statistics, or of CRCs."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from asd.dumps.compare.comparison import ComparedRow
from asd.dumps.compare.first_difference import Divergence
from asd.dumps.formats.new_file import cell_text
from asd.dumps.formats.slots import Slot

_Columns = tuple[Sequence[str], Callable[[ComparedRow], Sequence[Any]]]
"""Titles of columns side by side, and their cells in a row."""
_NONE = "N/A"
_SIDES = ("NPU", "Bench")


def _of_slots(title: str, take: Callable[[Slot], Any], sides: tuple[str, str] = _SIDES) -> _Columns:
    """Returns a column of the run under test, and one of the trusted run."""

    def cells(row: ComparedRow) -> list[Any]:
        return [None if slot is None else take(slot) for slot in (row.tested, row.trusted)]

    return [title.format(name) for name in sides], cells


def _values(row: ComparedRow) -> list[Any]:
    """Returns the statistics of both sides."""
    return [each for slot in (row.tested, row.trusted) for each in (_NO_VALUES if slot is None else slot.values)]


def _statistics(row: ComparedRow) -> list[Any]:
    """Returns the differences of the statistics, the relative ones, and the statistics of both sides."""
    values = _values(row)
    numbers = [value if isinstance(value, (int, float)) else None for value in values]
    pairs = list(zip(numbers[: len(_WHAT)], numbers[len(_WHAT) :], strict=True))
    return [*(_difference(*pair) for pair in pairs), *(_relative(*pair) for pair in pairs), *values]


def _difference(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else float(ours) - float(theirs)


def _relative(ours: float | None, theirs: float | None) -> str | None:
    if ours is None or theirs is None or (theirs == 0 != ours):
        return None
    return f"{abs((float(ours) - float(theirs)) / float(theirs)) * 100 if theirs else 0.0}%"


def _crc(slot: Slot) -> str | None:
    return slot.md5 if slot.scalar is None else f"{zlib.crc32(slot.scalar.encode(errors='replace')):08x}"


def _same_gradient(row: ComparedRow) -> bool | None:
    if row.tested is None or row.trusted is None:
        return None
    return row.tested.form.requires_grad == row.trusted.form.requires_grad


def _metrics(row: ComparedRow) -> list[Any]:
    return [None if row.metrics is None else getattr(row.metrics, name) for name in _METRICS.values()] + _values(row)


_BASIC: list[_Columns] = [
    (("NPU Name", "Bench Name"), lambda row: (row.name, row.trusted_name)),
    _of_slots("{} Dtype", lambda slot: slot.dtype),
    _of_slots("{} Tensor Shape", lambda slot: str(list(slot.shape))),
    _of_slots("{} Requires_grad", lambda slot: slot.requires_grad),
]
_METRICS = {
    "Cosine": "cosine",
    "EucDist": "euclidean",
    "MaxAbsErr": "max_abs",
    "MaxRelativeErr": "max_relative",
    "One Thousandth Err Ratio": "thousandth",
    "Five Thousandths Err Ratio": "five_thousandths",
}
_WHAT = ("max", "min", "mean", "l2norm")
_NO_VALUES = (None,) * len(_WHAT)
_EACH_SIDE = [f"{side} {what}" for side in _SIDES for what in _WHAT]
_DIFFERENCES = ["Max diff", "Min diff", "Mean diff", "L2norm diff"]
_RELATIVE = ["MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"]
_MIDDLE: dict[str, _Columns] = {
    "tensor": ([*_METRICS, *_EACH_SIDE], _metrics),
    "statistics": ([*_DIFFERENCES, *_RELATIVE, *_EACH_SIDE], _statistics),
    "md5": _of_slots("{} MD5", _crc, ("NPU", "BENCH")),
}


def _answer(row: ComparedRow, found: Divergence) -> str | None:
    name = row.name if row.tested is not None else row.trusted_name
    return found.answer.value if name in found.rows else None


def _files(row: ComparedRow) -> str:
    return str([slot.data_name if slot and slot.data_name else "-1" for slot in (row.tested, row.trusted)])


class ResultTable:
    """Table of results, with one line for each row.

    Args:
        mode: `tensor`, `statistics` or `md5`.
        stacks: The call stack by name for the column of stacks; None for no such column.
        found: First difference between the runs; its rows have the answer.
    """

    def __init__(self, mode: str, stacks: dict[str, str] | None, found: Divergence | None) -> None:
        self._stacks = stacks
        tensor = mode == "tensor"
        reached = "Accuracy Reached or Not" if tensor else "Result"
        self._columns: list[_Columns] = [
            *_BASIC,
            _MIDDLE[mode],
            (
                ("Requires_grad Consistent", reached, "Err_message"),
                lambda row: (_same_gradient(row), row.verdict, row.message),
            ),
        ]
        self._end: list[_Columns] = [
            *([(("Data_name",), lambda row: (_files(row),))] if tensor else []),
            (
                ("Difference", "Bound", "Answer"),
                lambda row: (row.difference, row.bound, None if found is None else _answer(row, found)),
            ),
        ]
        self.header = [
            *(title for titles, _ in self._columns for title in titles),
            *(["NPU_Stack_Info"] if stacks is not None else []),
            *(title for titles, _ in self._end for title in titles),
        ]

    def line(self, row: ComparedRow, entry: str, *, first: bool) -> list[Any]:
        """Returns one line.

        Args:
            row: The row.
            entry: The call it belongs to, for its stack.
            first: Whether it is the call's first row, the only one with the stack.
        """
        cells = [cell for _, take in self._columns for cell in take(row)]
        if self._stacks is not None:
            cells.append(self._stacks.get(entry) if first else "None")
        cells += [cell for _, take in self._end for cell in take(row)]
        return [_NONE if cell is None else cell_text(cell) if type(cell) is str else cell for cell in cells]

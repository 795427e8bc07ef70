"""The table of results, with the columns that other programs read: of tensors, of statistics, or of CRCs."""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from asd.dumps.compare.comparison import ComparedRow
from asd.dumps.compare.first_difference import Divergence
from asd.dumps.formats.new_file import cell_text
from asd.dumps.formats.slots import Slot

_Column = tuple[str, Callable[[ComparedRow], Any]]
_NONE = "N/A"


def _of_slots(title: str, take: Callable[[Slot], Any], sides: tuple[str, str] = ("NPU", "Bench")) -> list[_Column]:
    """Returns a column of the run under test, and one of the trusted run."""

    def cell(row: ComparedRow, side: int) -> Any:
        slot = (row.tested, row.trusted)[side]
        return None if slot is None else take(slot)

    return [(title.format(name), partial(cell, side=side)) for side, name in enumerate(sides)]


def _value(slot: Slot, place: int) -> Any:
    return slot.values[place]


def _values(row: ComparedRow, place: int) -> tuple[Any, Any]:
    """Returns a statistic of both sides; None where it is no number."""
    found = [None if slot is None else slot.values[place] for slot in (row.tested, row.trusted)]
    ours, theirs = (value if isinstance(value, (int, float)) else None for value in found)
    return ours, theirs


def _difference(row: ComparedRow, place: int) -> float | None:
    ours, theirs = _values(row, place)
    return None if ours is None or theirs is None else float(ours) - float(theirs)


def _relative(row: ComparedRow, place: int) -> str | None:
    ours, theirs = _values(row, place)
    if ours is None or theirs is None or (theirs == 0 != ours):
        return None
    return f"{abs((float(ours) - float(theirs)) / float(theirs)) * 100 if theirs else 0.0}%"


def _crc(slot: Slot) -> str | None:
    return slot.md5 if slot.scalar is None else f"{zlib.crc32(slot.scalar.encode(errors='replace')):08x}"


def _same_gradient(row: ComparedRow) -> bool | None:
    if row.tested is None or row.trusted is None:
        return None
    return row.tested.form.requires_grad == row.trusted.form.requires_grad


def _metric(row: ComparedRow, name: str) -> Any:
    return None if row.metrics is None else getattr(row.metrics, name)


_BASIC: list[_Column] = [
    ("NPU Name", lambda row: row.name),
    ("Bench Name", lambda row: row.trusted_name),
    *_of_slots("{} Dtype", lambda slot: slot.dtype),
    *_of_slots("{} Tensor Shape", lambda slot: str(list(slot.shape))),
    *_of_slots("{} Requires_grad", lambda slot: slot.requires_grad),
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
_VALUES = [_of_slots(f"{{}} {what}", partial(_value, place=place)) for place, what in enumerate(_WHAT)]
_EACH_SIDE = [pair[side] for side in (0, 1) for pair in _VALUES]
_MIDDLE: dict[str, list[_Column]] = {
    "tensor": [*((title, partial(_metric, name=name)) for title, name in _METRICS.items()), *_EACH_SIDE],
    "statistics": [
        *((f"{what} diff", partial(_difference, place=i)) for i, what in enumerate(("Max", "Min", "Mean", "L2norm"))),
        *((f"{what}RelativeErr", partial(_relative, place=i)) for i, what in enumerate(("Max", "Min", "Mean", "Norm"))),
        *_EACH_SIDE,
    ],
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
        self._columns: list[_Column] = [
            *_BASIC,
            *_MIDDLE[mode],
            ("Requires_grad Consistent", _same_gradient),
            ("Accuracy Reached or Not" if tensor else "Result", lambda row: row.verdict),
            ("Err_message", lambda row: row.message),
        ]
        self._end: list[_Column] = [
            *([("Data_name", _files)] if tensor else []),
            ("Difference", lambda row: row.difference),
            ("Bound", lambda row: row.bound),
            ("Answer", lambda row: None if found is None else _answer(row, found)),
        ]
        self.header = [
            *(title for title, _ in self._columns),
            *(["NPU_Stack_Info"] if stacks is not None else []),
            *(title for title, _ in self._end),
        ]

    def line(self, row: ComparedRow, entry: str, *, first: bool) -> list[Any]:
        """Returns one line.

        Args:
            row: The row.
            entry: The call it belongs to, for its stack.
            first: Whether it is the call's first row, the only one with the stack.
        """
        cells = [take(row) for _, take in self._columns]
        if self._stacks is not None:
            cells.append(self._stacks.get(entry) if first else "None")
        cells += [take(row) for _, take in self._end]
        return [_NONE if cell is None else cell_text(cell) if type(cell) is str else cell for cell in cells]

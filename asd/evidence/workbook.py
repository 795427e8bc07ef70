"""The table of results as a workbook: the header stays in sight, columns can be filtered, wrong rows are marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from asd.errors import StateError, UnsupportedError
from asd.evidence.new_file import new_file
from asd.evidence.verdict import BAD

__all__ = ["open_workbook"]

_MOST_ROWS = 1_048_576
_LONGEST = 32_767
_MARK = "FFF2B8B5"
_VERDICTS = ("Accuracy Reached or Not", "Result")


@contextmanager
def open_workbook(path: Path, header: list[str]) -> Iterator[Callable[[list[Any]], None]]:
    """A function that takes the lines of the table; the workbook stands at `path` when the block ends well.

    Raises:
        UnsupportedError: openpyxl is not installed.
        StateError: There are more lines than a sheet holds.
        FileExistsError: Something is at `path`.
    """
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
        from openpyxl.styles import PatternFill
    except ModuleNotFoundError:
        raise UnsupportedError(
            "a workbook needs openpyxl, which is not installed; pip install 'mindspore-asd[compare]' brings it."
        ) from None
    book = Workbook(write_only=True)
    sheet = book.create_sheet("compare")
    sheet.freeze_panes = "C2"
    verdict = next(header.index(name) for name in _VERDICTS if name in header)
    mark = PatternFill("solid", fgColor=_MARK)
    count = 1

    def cell(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return ILLEGAL_CHARACTERS_RE.sub("?", value)[:_LONGEST] if isinstance(value, str) else value

    def line(values: list[Any]) -> None:
        nonlocal count
        count += 1
        if count > _MOST_ROWS:
            raise StateError(f"{path} would need more than the {_MOST_ROWS} rows of a sheet; use the csv.")
        cells = [cell(value) for value in values]
        if values[verdict] in BAD:
            marked = WriteOnlyCell(sheet, cells[verdict])
            marked.fill = mark
            cells[verdict] = marked
        sheet.append(cells)

    sheet.append(header)
    with new_file(path) as file:
        yield line
        sheet.auto_filter.ref = f"A1:{_column(len(header))}{count}"
        book.save(file)


def _column(number: int) -> str:
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters

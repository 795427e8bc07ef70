"""The table of results as a workbook: the header stays in sight, columns can be filtered, wrong rows are marked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from asd.dumps.compare.wrong_rows import BAD
from asd.dumps.formats.new_file import new_file
from asd.errors import StateError, UnsupportedError

__all__ = ["open_workbook", "write_sheets"]

_MOST_ROWS = 1_048_576
_LONGEST = 32_767
_MARK = "FFF2B8B5"
_TITLE = re.compile(r"[\\*?:/\[\]]")
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_VERDICTS = ("Accuracy Reached or Not", "Result")


@contextmanager
def open_workbook(path: Path, header: list[str]) -> Iterator[Callable[[list[Any]], None]]:
    """A function that takes the lines of the table; the workbook stands at `path` when the block ends well.

    Raises:
        UnsupportedError: openpyxl is not installed.
        StateError: There are more lines than a sheet holds.
        FileExistsError: Something is at `path`.
    """
    book = _workbook()
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import PatternFill

    sheet = book.create_sheet("compare")
    sheet.freeze_panes = "C2"
    verdict = next(header.index(name) for name in _VERDICTS if name in header)
    mark = PatternFill("solid", fgColor=_MARK)
    count = 1

    def line(values: list[Any]) -> None:
        nonlocal count
        count += 1
        if count > _MOST_ROWS:
            raise StateError(f"{path} would need more than the {_MOST_ROWS} rows of a sheet; use the csv.")
        cells = [_cell(value) for value in values]
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


def write_sheets(path: Path, tables: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Writes a workbook with a sheet for each table, the first line of which is its header.

    Raises:
        UnsupportedError: openpyxl is not installed.
        FileExistsError: Something is at `path`.
    """
    book = _workbook()
    for name, lines in tables.items():
        sheet = book.create_sheet(_TITLE.sub("_", name)[:31])
        sheet.freeze_panes = "B2"
        for line in lines:
            sheet.append([_cell(value) for value in line])
    with new_file(path) as file:
        book.save(file)


def _workbook() -> Any:
    try:
        from openpyxl import Workbook
    except ModuleNotFoundError:
        raise UnsupportedError(
            "a workbook needs openpyxl, which is not installed; pip install 'mindspore-asd[compare]' brings it."
        ) from None
    return Workbook(write_only=True)


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _ILLEGAL.sub("?", value)[:_LONGEST] if isinstance(value, str) else value


def _column(number: int) -> str:
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters

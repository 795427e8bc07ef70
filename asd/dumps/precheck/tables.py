"""The two tables of a pre-check, written call by call, so that a check that is cut short can go on.

    accuracy_checking_result_{timestamp}.csv     one row for each API
    accuracy_checking_details_{timestamp}.csv    one row for each output

Both are UTF-8 with a byte order mark. The rows of an API reach the details before the result has its row, so an API
that the result names is done.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from asd.dumps.formats.new_file import free_timestamp
from asd.errors import ConfigError, StateError

__all__ = ["DETAILS", "RESULT", "ApiResult", "Detail", "Tables"]

RESULT = ["API Name", "Forward Test Success", "Backward Test Success", "Message"]
DETAILS = [
    "API Name", "Bench Dtype", "Tested Dtype", "Shape", "Cosine", "MaxAbsErr", "MaxRelativeErr", "Status", "Message",
]  # fmt: skip
PASS, ERROR, SKIP = "pass", "error", "SKIP"

_RESULT_NAME, _DETAILS_NAME = "accuracy_checking_result_{}.csv", "accuracy_checking_details_{}.csv"
_BOM = "\ufeff".encode()
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Detail:
    """One output.

    Attributes:
        name: Such as `Mint.mul.0.forward.output.0`.
        bench_dtype: Type of the reference, as dumps name types.
        tested_dtype: Type of the output.
        shape: Of the output.
        cosine: See `rules.Judgement`; the next two likewise.
        max_abs: Largest absolute error.
        max_relative: Largest relative error.
        status: `pass` or `error`.
        message: What there is to say.
    """

    name: str
    bench_dtype: str
    tested_dtype: str
    shape: tuple[int, ...]
    cosine: float
    max_abs: float
    max_relative: float
    status: str
    message: str = ""

    def row(self) -> list[str]:
        """Its row."""
        numbers = [repr(float(number)) for number in (self.cosine, self.max_abs, self.max_relative)]
        return [
            self.name, self.bench_dtype, self.tested_dtype, str(self.shape), *numbers, self.status, _text(self.message)
        ]  # fmt: skip


@dataclass(frozen=True)
class ApiResult:
    """One API.

    Attributes:
        name: Such as `Mint.mul.0`.
        forward: `pass`, `error` or `SKIP`; empty when the dump has no such direction.
        backward: The same.
        message: Why it was skipped or is wrong.
        details: Its outputs.
    """

    name: str
    forward: str
    backward: str
    message: str = ""
    details: list[Detail] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """`error` if one direction is, `SKIP` if the forward pass was skipped, else `pass`."""
        if ERROR in (self.forward, self.backward):
            return ERROR
        return PASS if PASS in (self.forward, self.backward) else SKIP


class Tables:
    """The two files.

    Args:
        result: Path of the table of results.
        details: Path of the table of details.
        done: What the table of results holds already.
    """

    def __init__(self, result: Path, details: Path, done: dict[str, ApiResult]) -> None:
        self.result, self.details, self.done = result, details, done

    @classmethod
    def create(cls, folder: Path, now: datetime) -> Tables:
        """Two new files with their headers; nothing that is there is overwritten.

        Raises:
            OSError: The folder can't be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        names = (_RESULT_NAME, _DETAILS_NAME)
        stamp = free_timestamp(folder, names, now)
        result, details = (folder / name.format(stamp) for name in names)
        for path, header in ((details, DETAILS), (result, RESULT)):
            with path.open("xb") as file:
                file.write(_BOM + _lines([header]))
        return cls(result, details, {})

    @classmethod
    def resume(cls, result: Path) -> Tables:
        """The files of a check that was cut short; what its last, unfinished API left is removed.

        Raises:
            ConfigError: `result` is not named as such a file, or the details are not beside it.
            StateError: A file is not such a table.
            OSError: A file can't be read or written.
        """
        before, after = _RESULT_NAME.split("{}")
        stamp = result.name.removeprefix(before).removesuffix(after)
        details = result.with_name(_DETAILS_NAME.format(stamp))
        if result.name != _RESULT_NAME.format(stamp) or not stamp:
            raise ConfigError("csv_path", str(result), f"the name must be like {_RESULT_NAME.format('20260101120000')}")
        for path in (result, details):
            if not path.is_file():
                raise ConfigError("csv_path", str(result), f"{path.name} is needed and not there")
        rows, end = _whole_rows(result, RESULT)
        done = {row[0]: ApiResult(row[0], row[1], row[2], row[3]) for row in rows}
        kept, details_end = 0, 0
        found, ends = _rows_with_ends(details, DETAILS)
        for row, row_end in zip(found, ends[1:], strict=True):
            if not _is_done(row[0], done):
                break
            kept, details_end = kept + 1, row_end
        os.truncate(result, end)
        os.truncate(details, details_end if kept else ends[0])
        return cls(result, details, done)

    def add(self, result: ApiResult) -> None:
        """Writes the rows of one API.

        Raises:
            OSError: They can't be written.
        """
        for path, rows in (
            (self.details, [detail.row() for detail in result.details]),
            (self.result, [[result.name, result.forward, result.backward, _text(result.message)]]),
        ):
            if rows:
                with path.open("ab", buffering=0) as file:
                    file.write(_lines(rows))
        self.done[result.name] = result


def _is_done(row_name: str, done: dict[str, ApiResult]) -> bool:
    """Whether the API is done whose output a row of details tells of."""
    parts = row_name.split(".")
    for end in range(1, len(parts)):
        # A module has its number behind the direction.
        inside = end > 2 and parts[end - 2] in ("forward", "backward", "parameters_grad")
        module = [*parts[: end - 2], parts[end - 1]] if inside else parts[:end]
        if ".".join(parts[:end]) in done or ".".join(module) in done:
            return True
    return False


def _lines(rows: Iterable[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _whole_rows(path: Path, header: list[str]) -> tuple[list[list[str]], int]:
    rows, ends = _rows_with_ends(path, header)
    return rows, ends[-1]


def _rows_with_ends(path: Path, header: list[str]) -> tuple[list[list[str]], list[int]]:
    """The rows behind the header, and where the header and each of them end; a line that is cut short is left out."""
    content = path.read_bytes()
    rows: list[list[str]] = []
    ends: list[int] = []
    at = 0
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\r\n"):
            break  # no field holds the end of a line, see `_text`
        at += len(line)
        try:
            fields = next(csv.reader([line.decode("utf-8-sig" if not ends else "utf-8")]))
        except (UnicodeDecodeError, csv.Error):
            fields = []
        if len(fields) != len(header) or (not ends and (fields != header or not line.startswith(_BOM))):
            raise StateError(f"line {len(ends) + 1} of {path} is not one of a pre-check with the columns {header}.")
        if ends:
            rows.append(fields)
        ends.append(at)
    if not ends:
        raise StateError(f"{path} has no whole header of a pre-check.")
    return rows, ends


def _text(message: str) -> str:
    """One line; what a spreadsheet would take for a formula is told from one by a quote."""
    line = " ".join(message.split())[:500]
    return f"'{line}" if line.startswith(_FORMULA) else line

"""Result tables of a pre-check, written call by call."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from asd.dumps.formats.new_file import cell_text, free_timestamp
from asd.dumps.precheck.rules import Judgement

_RESULT = ["API Name", "Forward Test Success", "Backward Test Success", "Message"]
_DETAILS = "API Name,Bench Dtype,Tested Dtype,Shape,Cosine,MaxAbsErr,MaxRelativeErr,Status,Message".split(",")  # noqa: SIM905
PASS, ERROR, SKIP = "pass", "error", "SKIP"

_RESULT_NAME, _DETAILS_NAME = "accuracy_checking_result_{}.csv", "accuracy_checking_details_{}.csv"
_BOM = "\ufeff".encode()


@dataclass(frozen=True)
class Detail:
    """Result for one output."""

    name: str  # name, such as `Mint.mul.0.forward.output.0`
    bench_dtype: str  # type of the reference, by its name in dumps
    tested_dtype: str  # type of the output
    shape: tuple[int, ...]  # shape of the output
    judgement: Judgement  # result of comparing them
    message: str = ""  # remark; may be empty

    @property
    def status(self) -> str:
        """Returns `pass` or `error`."""
        return PASS if self.judgement.passed else ERROR

    def row(self) -> list[str]:
        """Returns the row of the table."""
        found = self.judgement
        numbers = [repr(float(number)) for number in (found.cosine, found.max_abs, found.max_relative)]
        types = [self.bench_dtype, self.tested_dtype, str(self.shape)]
        return [self.name, *types, *numbers, self.status, _text(self.message)]


@dataclass(frozen=True)
class ApiResult:
    """Result for one API."""

    name: str  # name, such as `Mint.mul.0`
    forward: str  # `pass`, `error` or `SKIP`; empty when the dump lacks this direction
    backward: str  # the same
    message: str = ""  # reason why it was skipped or is wrong
    details: list[Detail] = field(default_factory=list)  # results for its outputs

    @property
    def verdict(self) -> str:
        """Returns `error` if one direction has it, `pass` if one direction has it, else `SKIP`."""
        if ERROR in (self.forward, self.backward):
            return ERROR
        return PASS if PASS in (self.forward, self.backward) else SKIP


class Tables:
    """The two tables of a pre-check.

    Args:
        result: Path of the table of results.
        details: Path of the table of details.
    """

    def __init__(self, result: Path, details: Path) -> None:
        self.result, self.details = result, details

    @classmethod
    def create(cls, folder: Path, now: datetime) -> Tables:
        """Makes two new files with their headers; existing files are not overwritten."""
        folder.mkdir(parents=True, exist_ok=True)
        names = (_RESULT_NAME, _DETAILS_NAME)
        stamp = free_timestamp(folder, names, now)
        result, details = (folder / name.format(stamp) for name in names)
        for path, header in ((details, _DETAILS), (result, _RESULT)):
            with path.open("xb") as file:
                file.write(_BOM + _lines([header]))
        return cls(result, details)

    def add(self, result: ApiResult) -> None:
        """Writes the rows of one API; raises OSError if they cannot be written."""
        for path, rows in (
            (self.details, [detail.row() for detail in result.details]),
            (self.result, [[result.name, result.forward, result.backward, _text(result.message)]]),
        ):
            if rows:
                with path.open("ab", buffering=0) as file:
                    file.write(_lines(rows))


def _lines(rows: Iterable[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _text(message: str) -> str:
    return cell_text(" ".join(message.split())[:500])

"""The page about a search for the first wrong operator."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from asd import __version__
from asd.dumps.compare.comparison import Options, compare_runs
from asd.dumps.pairing.request import Request
from asd.exporters.report.compare_page import render
from asd.rundir.disk import write_whole
from asd.rundir.names import NARROWING_ANSWER

__all__ = ["write_page"]


def write_page(folder: Path) -> Path | None:
    """Writes `report.html` beside the answer in `folder`; None where there is no answer.

    Raises:
        OSError: It can't be written.
        StateError: A dump can't be read.
    """
    file = folder / NARROWING_ANSWER
    if not file.is_file():
        return None
    tested, trusted = json.loads(file.read_text(encoding="utf-8"))["dumps"]
    request = Request(folder / tested, folder / trusted)
    with tempfile.TemporaryDirectory() as tables:  # they are in the folder already
        outcome = compare_runs(request, Path(tables), Options(by="bits"))
    page = folder / "report.html"
    write_whole(page, render(outcome, request, version=__version__))
    return page

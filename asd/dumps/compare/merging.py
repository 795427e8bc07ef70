"""The results of several ranks side by side: for each chosen column a table of rows by ranks."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from asd.dumps.formats.json_stream import open_text
from asd.errors import ConfigError, StateError

__all__ = ["find_results", "merge"]

_NAME = re.compile(r"compare_result_(?:step(\d+)_)?rank(\d+)_(\d{14})\.csv")
_KEY = "NPU Name"


def find_results(folder: Path) -> dict[int, Path]:
    """The newest result of each rank in a folder.

    Raises:
        ConfigError: There is none, or the ranks' results are of several steps.
    """
    found: dict[int, tuple[str, Path]] = {}
    steps = set()
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None:
            steps.add(match[1])
            rank = int(match[2])
            found[rank] = max(found.get(rank, ("", path)), (match[3], path))
    if not found:
        raise ConfigError("--input_dir", str(folder), "a folder with compare_result_rank{R}_{time}.csv files is needed")
    if len(steps) > 1:
        raise ConfigError("--input_dir", str(folder), "it holds results of several steps; give those of one")
    return {rank: found[rank][1] for rank in sorted(found)}


def merge(results: dict[int, Path], apis: Sequence[str], columns: Sequence[str]) -> dict[str, list[list[str]]]:
    """For each column a table: its header, then a line for each row of any rank with the value of every rank.

    Args:
        results: The csv file of each rank.
        apis: Names of calls whose rows are wanted; empty for all.
        columns: Names of columns in the files.

    Raises:
        StateError: A file is no such result, or lacks a column.
        OSError: A file can't be read.
    """
    header = [_KEY, *(f"rank{rank}" for rank in results)]
    tables: dict[str, dict[str, list[str]]] = {column: {} for column in columns}
    for index, path in enumerate(results.values()):
        with open_text(path) as file:
            reader = csv.DictReader(file)
            missing = [name for name in (_KEY, *columns) if name not in (reader.fieldnames or ())]
            if missing:
                raise StateError(f"{path} has no column {missing[0]!r}.")
            for row in reader:
                if not apis or any(row[_KEY].startswith(api) for api in apis):
                    for column in columns:
                        line = tables[column].setdefault(row[_KEY], ["N/A"] * len(results))
                        line[index] = row[column] or ""
    return {column: [header, *([name, *values] for name, values in lines.items())] for column, lines in tables.items()}

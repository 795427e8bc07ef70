"""The comparisons of several ranks side by side, in one table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from asd.dumps.formats.json_stream import open_text
from asd.dumps.formats.new_file import free_timestamp, new_file
from asd.dumps.pairing.mapping_file import read_yaml
from asd.errors import ConfigError, StateError

__all__ = ["merge_ranks"]

_KEYS = ("api", "compare_index")
_NAME = re.compile(r"compare_result_(?:step(\d+)_)?rank(\d+)_(\d{14})\.csv")
_ROW = "NPU Name"
_FILE = "multi_ranks_compare_merge_{}.csv"


def merge_ranks(folder: Path, config: Path, output: Path) -> tuple[Path, str]:
    """Writes one table with the chosen columns of every rank.

    Args:
        folder: Holds the `compare_result_rank{R}_{time}.csv` of one step; of each rank the newest counts.
        config: A yaml file: `api`, names of calls, left out for all; `compare_index`, names of columns.
        output: Folder of the table.

    Returns:
        The table, and what it holds in words.

    Raises:
        ConfigError: A folder or file is not there, or the yaml is of another form.
        StateError: A result lacks a column.
        OSError: A file can't be read or written.
    """
    if not folder.is_dir():
        raise ConfigError("--input_path", str(folder), "with --merge it must be a folder")
    if output.exists() and not output.is_dir():
        raise ConfigError("--output_path", str(output), "it must be a folder, new or there already")
    apis, columns = _settings(config)
    results = _find_results(folder)
    header, lines = _merged(results, apis, columns)
    target = output / _FILE.format(free_timestamp(output, [_FILE], datetime.now().astimezone()))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *lines])
    with new_file(target) as file:
        file.write(text.getvalue().encode(errors="backslashreplace"))
    return target, f"{len(lines)} rows of {len(results)} ranks by {', '.join(columns)}"


def _settings(config: Path) -> tuple[list[str], list[str]]:
    if not config.is_file():
        raise ConfigError("--config-path", str(config), "there is no such file")
    found = read_yaml(config)
    if not isinstance(found, dict) or set(found) - set(_KEYS) or not found.get("compare_index"):
        raise ConfigError("--config-path", str(config), f"the keys {' and '.join(_KEYS)} are needed, and no others")
    lists = [found.get(key) or [] for key in _KEYS]
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
        raise ConfigError("--config-path", str(config), "both keys hold lists of names")
    return lists[0], lists[1]


def _find_results(folder: Path) -> dict[int, Path]:
    """The newest result of each rank."""
    found: dict[int, tuple[str, Path]] = {}
    steps = set()
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None:
            steps.add(match[1])
            rank = int(match[2])
            found[rank] = max(found.get(rank, ("", path)), (match[3], path))
    if not found:
        valid = "a folder with compare_result_rank{R}_{time}.csv files is needed"
        raise ConfigError("--input_path", str(folder), valid)
    if len(steps) > 1:
        raise ConfigError("--input_path", str(folder), "it holds results of several steps; give those of one")
    return {rank: found[rank][1] for rank in sorted(found)}


def _merged(results: dict[int, Path], apis: Sequence[str], columns: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The header, then a line for each row of any rank with every column of every rank."""
    rows: dict[str, dict[tuple[str, int], str]] = {}
    for rank, path in results.items():
        with open_text(path) as file:
            reader = csv.DictReader(file)
            missing = [name for name in (_ROW, *columns) if name not in (reader.fieldnames or ())]
            if missing:
                raise StateError(f"{path} has no column {missing[0]!r}.")
            for row in reader:
                if not apis or any(row[_ROW].startswith(api) for api in apis):
                    cells = rows.setdefault(row[_ROW], {})
                    cells.update({(column, rank): row[column] or "" for column in columns})
    places = [(column, rank) for column in columns for rank in results]
    header = [_ROW, *(f"{column} rank{rank}" for column, rank in places)]
    return header, [[name, *(cells.get(place, "N/A") for place in places)] for name, cells in rows.items()]

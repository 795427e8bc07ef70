"""Puts the comparisons of several ranks side by side: a workbook with a sheet for each column of the results."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from asd.dumps.formats.json_stream import open_text
from asd.errors import ConfigError, StateError

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd merge_result -i out -o merged -config merge.yaml

merge.yaml: api: [Mint.add.0.forward]           names of calls; left out, all of them
            compare_index: [Cosine, MaxAbsErr]  columns of the results

exit codes: 0 done; 1 a result can't be read or the workbook written; 2 wrong usage."""

_KEYS = ("api", "compare_index")
_NAME = re.compile(r"compare_result_(?:step(\d+)_)?rank(\d+)_(\d{14})\.csv")
_ROW = "NPU Name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd merge_result`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("-i", "--input_dir", required=True, metavar="DIR", help="folder of the csv files of the ranks")
    parser.add_argument("-o", "--output_dir", default="output", metavar="DIR", help="folder of the result; output")
    parser.add_argument(
        "-config", "--config-path", required=True, metavar="FILE", help="yaml with api and compare_index"
    )


def run(args: argparse.Namespace) -> int:
    """Merges and says where."""
    from asd.dumps.compare.workbook import write_sheets
    from asd.dumps.formats.new_file import free_timestamp

    folder, output = Path(args.input_dir), Path(args.output_dir)
    if not folder.is_dir():
        raise ConfigError("--input_dir", args.input_dir, "it must be a folder")
    if output.exists() and not output.is_dir():
        raise ConfigError("--output_dir", args.output_dir, "it must be a folder, new or there already")
    apis, columns = _settings(args.config_path)
    results = _find_results(folder)
    tables = _merge(results, apis, columns)
    pattern = "multi_ranks_compare_merge_{}.xlsx"
    target = output / pattern.format(free_timestamp(output, [pattern], datetime.now().astimezone()))
    write_sheets(target, tables)
    rows = max(len(table) - 1 for table in tables.values())
    print(f"{rows} rows of {len(results)} ranks by {', '.join(columns)}\n  {target}")
    return 0


def _settings(given: str) -> tuple[list[str], list[str]]:
    from asd.dumps.pairing.mapping_file import read_yaml

    if not Path(given).is_file():
        raise ConfigError("--config-path", given, "there is no such file")
    found = read_yaml(Path(given))
    if not isinstance(found, dict) or set(found) - set(_KEYS) or not found.get("compare_index"):
        raise ConfigError("--config-path", given, f"the keys {' and '.join(_KEYS)} are needed, and no others")
    lists = [found.get(key) or [] for key in _KEYS]
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
        raise ConfigError("--config-path", given, "both keys hold lists of names")
    return lists[0], lists[1]


def _find_results(folder: Path) -> dict[int, Path]:
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


def _merge(results: dict[int, Path], apis: Sequence[str], columns: Sequence[str]) -> dict[str, list[list[str]]]:
    """For each column a table: its header, then a line for each row of any rank with the value of every rank.

    Args:
        results: The csv file of each rank.
        apis: Names of calls whose rows are wanted; empty for all.
        columns: Names of columns in the files.

    Raises:
        StateError: A file is no such result, or lacks a column.
        OSError: A file can't be read.
    """
    header = [_ROW, *(f"rank{rank}" for rank in results)]
    tables: dict[str, dict[str, list[str]]] = {column: {} for column in columns}
    for index, path in enumerate(results.values()):
        with open_text(path) as file:
            reader = csv.DictReader(file)
            missing = [name for name in (_ROW, *columns) if name not in (reader.fieldnames or ())]
            if missing:
                raise StateError(f"{path} has no column {missing[0]!r}.")
            for row in reader:
                if not apis or any(row[_ROW].startswith(api) for api in apis):
                    for column in columns:
                        line = tables[column].setdefault(row[_ROW], ["N/A"] * len(results))
                        line[index] = row[column] or ""
    return {column: [header, *([name, *values] for name, values in lines.items())] for column, lines in tables.items()}

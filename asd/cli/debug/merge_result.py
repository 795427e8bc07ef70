"""Puts the comparisons of several ranks side by side: a workbook with a sheet for each column of the results."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from asd.errors import ConfigError

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd merge_result -i out -o merged -config merge.yaml

merge.yaml: api: [Mint.add.0.forward]           names of calls; left out, all of them
            compare_index: [Cosine, MaxAbsErr]  columns of the results

exit codes: 0 done; 1 a result can't be read or the workbook written; 2 wrong usage."""

_KEYS = ("api", "compare_index")


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
    from asd.dumps.compare.merging import find_results, merge
    from asd.dumps.compare.workbook import write_sheets
    from asd.dumps.formats.new_file import free_timestamp

    folder, output = Path(args.input_dir), Path(args.output_dir)
    if not folder.is_dir():
        raise ConfigError("--input_dir", args.input_dir, "it must be a folder")
    if output.exists() and not output.is_dir():
        raise ConfigError("--output_dir", args.output_dir, "it must be a folder, new or there already")
    apis, columns = _settings(args.config_path)
    results = find_results(folder)
    tables = merge(results, apis, columns)
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

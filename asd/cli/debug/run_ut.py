"""Re-runs every API call of a dump and compares it with a reference in float64, forward and backward.

If the dump has tensors (task tensor), these are the inputs, and its outputs are checked too. If it has statistics,
the inputs are random between Min and Max, the same in every run. A call that cannot be checked is marked SKIP with the
reason. Results are written call by call.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from asd.cli.shared.progress import Bar
from asd.cli.shared.stopping import quiet
from asd.errors import ConfigError

if TYPE_CHECKING:
    from asd.dumps.precheck.calls import Call
    from asd.dumps.precheck.tables import ApiResult, Tables

_EXAMPLES = """\
Examples:
  asd run_ut -api_info dump/step0/rank0/dump.json -o out
  asd run_ut -api_info dump/step0/rank0/dump.json --rule strict      in units in the last place of each type
  asd acc_check -api_info dump.json --json                           its newer name, as JSON

rules: seed      a cosine above 0.99 and a largest absolute error below 0.0001 (--abs_limit)
       rounding  the same, or the rule strict: errors that rounding explains
       strict    every element within 64 units in the last place of float32 and float64, 16 of float16 and bfloat16

exit codes: 0 done, with any result; 1 the dump cannot be read or a result not be written; 2 wrong usage."""

_LISTED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd run_ut`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("-api_info", "--api_info_file", required=True, metavar="FILE", help="dump.json of the calls")
    parser.add_argument("-o", "--out_path", metavar="DIR", help="folder of the results (default: the current one)")
    parser.add_argument(
        "--rule", choices=("rounding", "seed", "strict"), default="rounding", help="rule to pass (default: rounding)"
    )
    parser.add_argument(
        "--abs_limit", type=float, default=0.0001, metavar="X", help="error of rounding, seed (default: 0.0001)"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for programs")


def run(args: argparse.Namespace) -> int:
    """Checks all calls, writes the tables and prints the result."""
    from asd.dumps.precheck.calls import read_calls
    from asd.dumps.precheck.tables import Tables

    path = Path(args.api_info_file)
    if not path.is_file():
        raise ConfigError("--api_info_file", args.api_info_file, "it must be a dump.json, but the file does not exist")
    if not (math.isfinite(args.abs_limit) and args.abs_limit > 0):
        raise ConfigError("--abs_limit", args.abs_limit, "a number above 0 is needed")
    folder = Path(args.out_path or ".")
    if folder.exists() and not folder.is_dir():
        raise ConfigError("--out_path", args.out_path, "it must be a folder, new or there already")
    task, calls = read_calls(path)
    tables = Tables.create(folder, datetime.now().astimezone())
    return _answer(_check(path, task, calls, tables, args), tables, as_json=args.json)


def _check(path: Path, task: str, calls: list[Call], tables: Tables, args: argparse.Namespace) -> list[ApiResult]:
    quiet()
    from asd.operators.debugger.precheck.check import Check

    check = Check(path, real=task == "tensor", rule=args.rule, abs_limit=args.abs_limit)
    bar = Bar("pre-check", len(calls), silent=not sys.stderr.isatty())
    results = []
    for number, call in enumerate(calls, 1):
        results.append(check.check(call))
        tables.add(results[-1])
        bar.show(number, f"{number}/{len(calls)}")
    bar.end(f"{len(calls)} calls")
    return results


def _answer(results: list[ApiResult], tables: Tables, *, as_json: bool) -> int:
    counts = Counter(result.verdict for result in results)
    wrong = [result for result in results if result.verdict == "error"]
    if as_json:
        facts = {
            "calls": len(results),
            "pass": counts["pass"],
            "error": counts["error"],
            "skip": counts["SKIP"],
            "errors": [{"name": each.name, "message": each.message} for each in wrong],
            "result": str(tables.result),
            "details": str(tables.details),
        }
        print(json.dumps(facts, indent=1))
        return 0
    for each in wrong[:_LISTED]:
        print(f"{each.name}: {each.message}")
    if len(wrong) > _LISTED:
        print(f"... and {len(wrong) - _LISTED} more in the result")
    print(f"{len(results)} calls: {counts['pass']} pass, {counts['error']} error, {counts['SKIP']} not checked")
    print(f"  {tables.result}\n  {tables.details}")
    return 0

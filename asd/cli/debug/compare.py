"""Compares the dumps of two runs and names the first operator that computed wrongly.

The run under test (`npu`) stands against a trusted one (`bench`), of MindSpore or of PyTorch. Every input and output
becomes a row of a csv file; what is there is never overwritten. At the end one sentence says where the runs part, and
an HTML page shows it.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asd.errors import ConfigError
from asd.records import plain
from asd.rundir.disk import write_whole

if TYPE_CHECKING:
    from asd.dumps.compare.calls import CallRows
    from asd.dumps.compare.comparison import ComparisonOutcome
    from asd.dumps.pairing.request import Request

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd compare -i compare.json -o out
  asd compare -i compare.json -o out -lm layer_mapping.yaml    MindSpore against PyTorch
  asd compare -tp run/step0 -gp golden/step0 -o out            every rank of a step
  asd compare -i compare.json --json                           the answer for programs

compare.json: {"npu_path": "run/step0/rank0/dump.json", "bench_path": "golden/step0/rank0/dump.json",
               "stack_path": "run/step0/rank0/stack.json", "is_print_compare_log": false}

exit codes: 0 done, whatever was found; 1 a dump can't be read or a result written; 2 wrong usage."""

_IGNORED = ("stack_mode", "compare_only", "highlight", "fuzzy_match", "diff_analyze")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd compare`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("-i", "--input_path", metavar="FILE", help="compare.json, which names both runs")
    parser.add_argument("-tp", "--target_path", metavar="PATH", help="the run under test, without a compare.json")
    parser.add_argument("-gp", "--golden_path", metavar="PATH", help="the trusted run, without a compare.json")
    parser.add_argument("-o", "--output_path", default="output", metavar="DIR", help="folder of the results; output")
    parser.add_argument("-lm", "--layer_mapping", metavar="FILE", help="which layer is which in the other framework")
    parser.add_argument("-cm", "--cell_mapping", nargs="?", const="", metavar="FILE", help="the same by cell")
    parser.add_argument("-am", "--api_mapping", nargs="?", const="", metavar="FILE", help="the same by API")
    parser.add_argument("-dm", "--data_mapping", metavar="FILE", help="the same by full names of slots")
    parser.add_argument(
        "--rules", choices=("classic", "graded"), default="classic",
        help="classic: Yes and No (default); graded: pass, warning and error, as newer tools judge",
    )  # fmt: skip
    parser.add_argument(
        "--by", choices=("auto", "bits", "rounding", "rule"), default="auto",
        help="what the first wrong operator is told by: equal bits, what rounding explains, or the rule of accuracy; "
        "auto chooses",
    )  # fmt: skip
    parser.add_argument("--xlsx", action="store_true", help="write a workbook too")
    parser.add_argument(
        "-tensor_log", "--is_print_compare_log", action="store_true", help="print a line for each row to stderr"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for programs")
    for short, long in (("-s", "stack_mode"), ("-c", "compare_only"), ("-hl", "highlight"), ("-f", "fuzzy_match")):
        names = [short, f"--{long}"] if short != "-f" else [short, "-fm", f"--{long}"]
        parser.add_argument(*names, dest=long, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-da", "--diff_analyze", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Compares, writes the results and says where the runs part."""
    from asd import __version__
    from asd.dumps.compare.comparison import Options, compare_runs
    from asd.exporters.report.compare_page import render

    request = _request(args)
    told = _tell if request.log or args.is_print_compare_log else _stay_quiet
    options = Options(
        args.rules, args.by, _file("layer_mapping", args.layer_mapping), _file("cell_mapping", args.cell_mapping),
        _file("api_mapping", args.api_mapping), _file("data_mapping", args.data_mapping), args.xlsx,
        told=told,
    )  # fmt: skip
    output = Path(args.output_path)
    outcome = compare_runs(request, output, options)
    page = output / f"compare_report_{outcome.stamp}.html"
    write_whole(page, render(outcome, request, version=__version__))
    notes = [*outcome.notes, *(_note(name) for name in _IGNORED[:4] if getattr(args, name))]
    if args.json:
        facts = {**_facts(outcome), "report": str(page), "notes": notes}
        print(json.dumps(facts, indent=1))
        return 0
    for note in notes:
        print(f"asd: {note}", file=sys.stderr)
    for pair in outcome.pairs:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(pair.verdicts.items()))
        print(f"{pair.where + ': ' if pair.where else ''}{pair.rows} rows of {pair.calls} calls ({counts})")
        for file in pair.files:
            print(f"  {file}")
    print(f"  {page}\n{outcome.sentence}")
    return 0


def _request(args: argparse.Namespace) -> Request:
    from asd.dumps.pairing.request import parse_request, read_request

    if args.input_path is not None:
        if args.target_path is not None or args.golden_path is not None:
            raise ConfigError("--input_path", args.input_path, "give it, or --target_path and --golden_path, not both")
        file = _file("input_path", args.input_path)
        assert file is not None
        return read_request(file)
    if args.target_path is None or args.golden_path is None:
        raise ConfigError("--input_path", None, "give it, or both --target_path and --golden_path")
    return parse_request({"target_path": args.target_path, "golden_path": args.golden_path})


def _file(name: str, given: str | None) -> Path | None:
    # Without a file the names of the frameworks are enough for cells and APIs.
    if given is None or (given == "" and name in ("cell_mapping", "api_mapping")):
        return None
    if not Path(given).is_file():
        raise ConfigError(f"--{name}", given, "there is no such file")
    return Path(given)


def _note(name: str) -> str:
    return f"--{name} is accepted for the sake of other tools and changes nothing here."


def _stay_quiet(_: CallRows) -> None:
    """Tells nothing."""


def _tell(call: CallRows) -> None:
    for row in call.rows:
        metrics = "" if row.metrics is None else f" cosine {row.metrics.cosine}, max abs err {row.metrics.max_abs}"
        print(f"{row.name}: {row.verdict}{metrics}", file=sys.stderr)


def _facts(outcome: ComparisonOutcome) -> dict[str, Any]:
    first = outcome.first
    return {
        "sentence": outcome.sentence,
        "first_divergence": None if first is None or first.divergence is None else plain(asdict(first.divergence)),
        "results": [
            {
                "step": pair.step, "rank": pair.rank, "mode": pair.mode, "calls": pair.calls, "rows": pair.rows,
                "verdicts": dict(pair.verdicts), "files": [str(file) for file in pair.files],
                "first_divergence": None if pair.divergence is None else plain(asdict(pair.divergence)),
            }
            for pair in outcome.pairs
        ],
    }  # fmt: skip

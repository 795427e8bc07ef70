"""Compares the dumps of two runs, reports where they first differ, and names the wrong operator if it can.

The run under test (`npu`) is compared with a trusted run (`bench`), of MindSpore or of PyTorch. Every input and output
is a row of a csv file. An HTML page shows the network as a tree, expanded where the runs first differ. No file is
overwritten. With `--gradients` the records of two gradient monitors are compared, and the first step that differs is
named. The share of a parameter's elements with the same sign is suspect below 0.97 in the first step, or after a fall
of more than 0.03.
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

if TYPE_CHECKING:
    from asd.dumps.compare.comparison import CallRows
    from asd.dumps.compare.runs import ComparisonOutcome
    from asd.dumps.formats.request import Request

_EXAMPLES = """\
Examples:
  asd compare -i compare.json -o out
  asd compare -i compare.json -o out -lm layer_mapping.yaml    MindSpore against PyTorch
  asd compare -tp run/step0 -gp golden/step0 -o out            every rank of a step
  asd compare -i compare.json --json                           the answer for programs
  asd compare --gradients -tp run -gp golden -o out            dump_path of two gradient monitors

compare.json: {"npu_path": "run/step0/rank0/dump.json", "bench_path": "golden/step0/rank0/dump.json",
               "stack_path": "run/step0/rank0/stack.json", "is_print_compare_log": false}

exit codes: 0 done, with any answer; 1 nothing can be compared or a result not be written; 2 wrong usage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd compare`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("-i", "--input_path", metavar="FILE", help="compare.json with the paths of both runs")
    parser.add_argument("-tp", "--target_path", metavar="PATH", help="run under test, instead of a compare.json")
    parser.add_argument("-gp", "--golden_path", metavar="PATH", help="trusted run, instead of a compare.json")
    parser.add_argument(
        "-o", "--output_path", default="output", metavar="DIR", help="folder of the results (default: output)"
    )
    parser.add_argument("-lm", "--layer_mapping", metavar="FILE", help="names of the layers in the other framework")
    parser.add_argument("--rank", type=int, metavar="N", help="compare only this rank")
    parser.add_argument("--step", type=int, metavar="N", help="compare only this step")
    parser.add_argument(
        "-tensor_log", "--is_print_compare_log", action="store_true", help="print a line for each row to stderr"
    )
    parser.add_argument("--gradients", action="store_true", help="compare the records of two gradient monitors")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for programs")


def run(args: argparse.Namespace) -> int:
    """Compares, writes the results and says where the runs part."""
    if args.gradients:
        return _compare_gradients(args)
    from asd.dumps.compare.runs import compare_runs
    from asd.exporters.report.comparison import render

    request = _request(args)
    told = _tell if request.log or args.is_print_compare_log else None
    layer = _file("layer_mapping", args.layer_mapping)
    outcome = compare_runs(request, Path(args.output_path), layer, told, (args.step, args.rank), render)
    if args.json:
        print(json.dumps({**_facts(outcome), "notes": outcome.notes}, indent=1))
        return 0
    for note in outcome.notes:
        print(f"asd: {note}", file=sys.stderr)
    for pair in outcome.pairs:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(pair.verdicts.items()))
        print(f"{pair.where + ': ' if pair.where else ''}{pair.rows} rows of {pair.calls} calls ({counts})")
        for file in pair.files:
            print(f"  {file}")
    print(outcome.sentence)
    return 0


def _compare_gradients(args: argparse.Namespace) -> int:
    """Compares the records of two gradient monitors, writes tables and pictures, and prints where the runs part."""
    from asd.dumps.compare.similarity import GradComparator
    from asd.exporters.pictures.gradients import draw_similarities

    for name, value in (("--target_path", args.target_path), ("--golden_path", args.golden_path)):
        if value is None:
            raise ConfigError(name, None, "--gradients needs it: the dump_path of a gradient monitor")
    output = Path(args.output_path)
    if output.exists() and not output.is_dir():
        raise ConfigError("--output_path", args.output_path, "it must be a folder, new or there already")
    results = GradComparator.compare_distributed(args.target_path, args.golden_path, output, draw_similarities)
    sentence = GradComparator.sentence(results)
    if args.json:
        facts = [
            {
                "rank": each.rank,
                "steps": each.steps,
                "file": str(each.file),
                "similarities": each.rows,
                "suspects": [asdict(suspect) for suspect in each.suspects],
                "first_difference": None
                if each.first_difference is None
                else {"step": each.first_difference[0], "parameter": each.first_difference[1]},
            }
            for each in results
        ]
        print(json.dumps({"sentence": sentence, "ranks": facts}, indent=1))
        return 0
    for each in results:
        print(f"rank {each.rank}: {len(each.parameters)} parameters, {len(each.steps)} steps\n  {each.file}")
    print(sentence)
    return 0


def _request(args: argparse.Namespace) -> Request:
    from asd.dumps.formats.request import parse_request, read_request

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
    if given is not None and not Path(given).is_file():
        raise ConfigError(f"--{name}", given, "there is no such file")
    return None if given is None else Path(given)


def _tell(call: CallRows) -> None:
    for row in call.rows:
        metrics = "" if row.metrics is None else f" cosine {row.metrics.cosine}, max abs err {row.metrics.max_abs}"
        print(f"{row.name}: {row.verdict}{metrics}", file=sys.stderr)


def _facts(outcome: ComparisonOutcome) -> dict[str, Any]:
    first = outcome.first
    return {
        "answer": outcome.answer,
        "sentence": outcome.sentence,
        "first_divergence": None if first is None or first.divergence is None else plain(asdict(first.divergence)),
        "results": [
            {
                "answer": pair.answer,
                "step": pair.step,
                "rank": pair.rank,
                "mode": pair.mode,
                "calls": pair.calls,
                "rows": pair.rows,
                "verdicts": dict(pair.verdicts),
                "files": [str(file) for file in pair.files],
                "first_divergence": None if pair.divergence is None else plain(asdict(pair.divergence)),
            }
            for pair in outcome.pairs
        ],
    }

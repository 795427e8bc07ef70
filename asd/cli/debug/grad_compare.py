"""Compares the gradients of two runs, as the gradient monitor recorded them, and names the step where they part.

The similarity of a parameter in a step is the share of its elements whose gradients point in the same direction.
Suspect is one below 0.97 in the first step, or one that falls by more than 0.03 from one step to the next.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from asd.errors import ConfigError

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd grad_compare run/gradients golden/gradients -o out
  asd grad_compare run/gradients golden/gradients -o out --json      for programs

writes out/rank{R}/similarities.csv, and out/rank{R}/similarities_picture/*.svg

exit codes: 0 done, whatever was found; 1 a file can't be read or written; 2 wrong usage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd grad_compare`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("path1", metavar="A", help="dump_path of one run")
    parser.add_argument("path2", metavar="B", help="dump_path of the other run")
    parser.add_argument("-o", "--output_path", default="output", metavar="DIR", help="folder of the results; output")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for programs")


def run(args: argparse.Namespace) -> int:
    """Compares, writes the tables and says where the runs part."""
    from asd.dumps.gradients.similarity import GradComparator
    from asd.exporters.pictures.gradients import draw_similarities

    output = Path(args.output_path)
    if output.exists() and not output.is_dir():
        raise ConfigError("--output_path", args.output_path, "it must be a folder, new or there already")
    results = GradComparator.compare_distributed(args.path1, args.path2, output, draw_similarities)
    sentence = GradComparator.sentence(results)
    if args.json:
        facts = [
            {
                "rank": each.rank, "steps": each.steps, "file": str(each.file), "similarities": each.rows,
                "suspects": [asdict(suspect) for suspect in each.suspects],
                "first_difference": None if each.first_difference is None else {
                    "step": each.first_difference[0], "parameter": each.first_difference[1]
                },
            }
            for each in results
        ]  # fmt: skip
        print(json.dumps({"sentence": sentence, "ranks": facts}, indent=1))
        return 0
    for each in results:
        print(f"rank {each.rank}: {len(each.rows) - 1} parameters, {len(each.steps)} steps\n  {each.file}")
    print(sentence)
    return 0

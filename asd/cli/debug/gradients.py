"""`asd compare --gradients`: compares the records of two gradient monitors and names the step where the runs part.

The similarity of a parameter in a step is the share of its elements whose gradients point in the same direction. A
similarity is suspect below 0.97 in the first step, or after a fall of more than 0.03 from one step to the next.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from asd.errors import ConfigError


def run(args: argparse.Namespace) -> int:
    """Compares, writes the tables and pictures, and prints where the runs part."""
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
        print(f"rank {each.rank}: {len(each.rows) - 1} parameters, {len(each.steps)} steps\n  {each.file}")
    print(sentence)
    return 0

"""Trains, injects, scores and reports."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detection.plan import SPLITS, make_plan
from benchmarks.detection.runner import run_plan

__all__ = ["add_arguments", "main", "run"]

EPILOG = """\
examples:
  python -m benchmarks.detection                    everything, resumable: start it again to go on
  python -m benchmarks.detection --quick            a subset
  python -m benchmarks.detection --score-only       other detectors on trainings that are there
  python -m benchmarks.detection --split development --json out.json --plots .

Replicas are computed one after another in one process and their gradients averaged, which is the arithmetic of an
all-reduce. The traces go to a work folder; the results to --json and --plots."""
RESULTS = Path(__file__).resolve().parents[1] / "results"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--split", choices=SPLITS, default="evaluation", help="what is run (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="the same as --split quick")
    parser.add_argument("--work", type=Path, default=Path("bench_detection"), help="folder of traces")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one a core)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no training after so many (default: no limit)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything (default %(default)s)")
    parser.add_argument("--score-only", action="store_true", help="train nothing, score what is there")
    parser.add_argument("--check", action="store_true", help="exit with 1 when the figures say that something broke")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw them there")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 0 when it is done, whether targets are met or missed, 1 when `--check` finds it broken."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.detection",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    if options.workers < 1 or options.seed < 0 or not options.minutes > 0:
        parser.error("--workers must be at least 1, --seed at least 0 and --minutes above 0")
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Runs with parsed options."""
    from benchmarks.detection.report import make_report, print_report, write_report
    from benchmarks.detection.score import score_units
    from benchmarks.detection.targets import regressions

    split = "quick" if options.quick else options.split
    units = make_plan(split, options.seed)
    folder = options.work / split
    if not options.score_only:
        run_plan(units, folder, options.workers, 60 * options.minutes)
    paths = [path for unit in units if (path := folder / f"{unit.name}.npz").exists()]
    if not paths:
        print(f"there are no trainings in {folder}; run without --score-only first.")
        return 1
    report = make_report(score_units(paths, options.workers), split, options.seed, missing=len(units) - len(paths))
    print_report(report)
    if options.json is not None:
        write_report(report, options.json)
    if options.plots is not None:
        from benchmarks.detection.plots import draw

        draw(report, options.plots)
    broken = regressions(report) if options.check else []
    for sentence in broken:
        print(f"error: {sentence}")
    return 1 if broken else 0

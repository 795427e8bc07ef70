"""Counts the alarms of healthy trainings of many kinds: every one is false.

Each training runs in graph mode with `ASD_RULE=adaptive` and its tiers, with and without clipping. Networks, optimizers
and data are others than those that margins were fitted to.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in {None, ""}:  # started as `python benchmarks/false_alarms`
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks._parallel import run_parallel
from benchmarks._wilson import per_million

EPILOG = """\
examples:
  python -m benchmarks.false_alarms                                all trainings, once
  python -m benchmarks.false_alarms --seeds 31 32 --json out.json
  python -m benchmarks.false_alarms --only expert                  those with `expert` in their name"""


def sum_up(rows: Sequence[dict[str, Any]], abrupt: Sequence[str]) -> dict[str, Any]:
    """Totals of the trainings whose data stay what they are, and of the others."""
    found = {}
    for key, some in (
        ("steady", [row for row in rows if row["training"] not in abrupt]),
        ("abrupt", [row for row in rows if row["training"] in abrupt]),
    ):
        checks = sum(row["checks"] for row in some)
        first, second = (sum(row[f"{level}_level"] for row in some) for level in ("first", "second"))
        with_one = sum(row["first_level"] > 0 for row in some)
        found[key] = {"trainings": len(some), "with_a_first_level_alarm": with_one, "checks": checks}
        if checks:
            found[key] |= {"first_level_per_million": per_million(first, checks), "first_level": first}
            found[key] |= {"second_level_per_million": per_million(second, checks), "second_level": second}
    return found


def main() -> int:
    """Runs them all and prints what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.false_alarms",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[31], help="of weights and data (default: 31)")
    parser.add_argument("--only", default="", metavar="WORDS", help="trainings whose name contains this")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one a core)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    import mindspore as ms

    from benchmarks.false_alarms.trainings import ABRUPT, TRAININGS
    from benchmarks.false_alarms.watch import watch

    chosen = [name for name in TRAININGS if options.only in name]
    if not chosen or options.workers < 1 or min(options.seeds) < 0:
        parser.error("--only must be part of a training's name, --workers at least 1 and --seeds at least 0")
    work = [(name, seed, clip) for seed in options.seeds for name in chosen for clip in (False, True)]
    rows = run_parallel(watch, work, options.workers, "training")
    for row in rows:
        told = f"; {row['example']}" if row["example"] else ""
        name = row["training"] + ", clipped" * row["clip"]
        levels = f"{row['first_level']:>3} of first and {row['second_level']:>4} of second level"
        print(f"{levels} in {row['checks']:>6} checks: {name}, seed {row['seed']}{told}")
    result = {"mindspore": ms.__version__, "seeds": options.seeds, **sum_up(rows, ABRUPT), "trainings": rows}
    print(json.dumps({key: result[key] for key in ("steady", "abrupt")}, indent=1))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit("interrupted.") from None

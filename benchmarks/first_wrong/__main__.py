"""How often the first wrong operator is named right.

    python -m benchmarks.first_wrong                       300 faults in PyNative
    python -m benchmarks.first_wrong --mode graph          300 faults in compiled graphs, see `graph`
    python -m benchmarks.first_wrong --mode across         96 faults in compiled graphs, against a run in PyNative
    python -m benchmarks.first_wrong --mode ranks          120 faults on one of two ranks, in PyNative
    python -m benchmarks.first_wrong --faults 30 --json out.json

Each fault is one unit in the last place, a part in a thousand, or an element that becomes 1000 or a million.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

from benchmarks.first_wrong.strikes import added, summed_up

FAULTS = {"pynative": 300, "graph": 300, "across": 96, "ranks": 120}


def _run(mode: str, only: str) -> Callable[[range, Path], dict[str, Any]]:
    from benchmarks.first_wrong import eager, graph, ranks

    if mode == "ranks":
        return ranks.run
    return eager.run if mode == "pynative" else partial(graph.run, only=only, across=mode == "across")


def main() -> None:
    """Runs the faults and prints what was named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=FAULTS, default="pynative")
    parser.add_argument("--faults", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first fault")
    parser.add_argument("--only", default="", help="part of the names of the trainings in graph mode; added to --json")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    began = time.perf_counter()
    count = FAULTS[args.mode] if args.faults is None else args.faults
    with tempfile.TemporaryDirectory() as name:
        found = _run(args.mode, args.only)(range(args.first, args.first + count), Path(name))
    for key, number in found["counts"].items():
        print(f"{key:<44}{number}")
    print(f"{time.perf_counter() - began:.0f} s")
    if args.only and args.json is not None and args.json.exists():
        found = added(found, json.loads(args.json.read_text()))
    from benchmarks.first_wrong.struck import WAYS

    found["summary"] = summed_up(found["counts"], WAYS if args.mode in ("graph", "across") else WAYS[:1])
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

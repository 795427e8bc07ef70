"""How often the first wrong operator is named right.

    python -m benchmarks.first_wrong                       300 faults in one process
    python -m benchmarks.first_wrong --mode ranks          120 faults on one of two ranks
    python -m benchmarks.first_wrong --faults 30 --json out.json

Each fault is one unit in the last place, a part in a thousand, or an element that becomes 1000 or a million.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("GLOG_v", "3")

from benchmarks._measured import write
from benchmarks.first_wrong.strikes import summed_up

FAULTS = {"pynative": 300, "ranks": 120}


def main() -> None:
    """Runs the faults and prints what was named."""
    from benchmarks.first_wrong import eager, ranks

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=FAULTS, default="pynative")
    parser.add_argument("--faults", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first fault")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    began = time.perf_counter()
    count = FAULTS[args.mode] if args.faults is None else args.faults
    run = ranks.run if args.mode == "ranks" else eager.run
    with tempfile.TemporaryDirectory() as name:
        found = run(range(args.first, args.first + count), Path(name))
    for key, number in found["counts"].items():
        print(f"{key:<44}{number}")
    print(f"{time.perf_counter() - began:.0f} s")
    found["summary"] = summed_up(found["counts"], ("tensors",))
    if args.json is not None:
        write(args.json, found)


if __name__ == "__main__":
    main()

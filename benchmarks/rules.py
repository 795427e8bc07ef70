"""Cost of one `update` of each rule, in pure Python.

A rule is updated once per checkpoint and step, so a network with 65 checked layers and a step of 100 ms spends
65 times the printed nanoseconds in 100 ms.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter_ns

from asd.rules import RULES, make_rule


def healthy_values(feature: str, count: int, seed: int) -> list[float]:
    """Values as a healthy checkpoint gives them: around 0.01, with a spread of about a quarter."""
    source = random.Random(seed)
    values = [0.01 * 2.0 ** source.gauss(0.0, 0.3) for _ in range(count)]
    return [value * value for value in values] if feature == "max_square" else values


def nanoseconds_per_update(name: str, updates: int, repeats: int, seed: int) -> tuple[float, int]:
    """Median nanoseconds per update over the repeats, and how many values were flagged in all of them."""
    times = []
    flagged = 0
    for repeat in range(repeats):
        rule = make_rule(name)
        values = healthy_values(rule.feature, updates, seed + repeat)
        update = rule.update
        start = perf_counter_ns()
        for value in values:
            update(value)
        times.append((perf_counter_ns() - start) / updates)
        fresh = make_rule(name)
        flagged += sum(fresh.update(value).level > 0 for value in values)
    return median(times), flagged


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints one line per rule and, if asked, writes the same as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: python benchmarks/rules.py --updates 50000 --json benchmarks/results/rules.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--updates", type=int, default=20000, help="updates per repeat (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=9, help="repeats, each with other values (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the values (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    options = parser.parse_args(arguments)
    if options.updates < 1 or options.repeats < 1:
        parser.error("--updates and --repeats must be at least 1")

    rows = []
    print(f"{'rule':<16} {'ns per update':>14} {'flagged':>8}")
    for name in RULES:
        nanoseconds, flagged = nanoseconds_per_update(name, options.updates, options.repeats, options.seed)
        rows.append({"rule": name, "ns_per_update": round(nanoseconds), "flagged": flagged})
        print(f"{name:<16} {nanoseconds:>14.0f} {flagged:>8}")
    if options.json is not None:
        report = {
            "benchmark": "rules",
            "python": platform.python_version(),
            "machine": platform.machine(),
            "updates": options.updates,
            "repeats": options.repeats,
            "seed": options.seed,
            "rules": rows,
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

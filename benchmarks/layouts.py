"""Faults in jobs of four real ranks that hold different parts of a network: who is named, and what is left of it.

    python benchmarks/layouts.py                                  204 faults, an hour or two
    python benchmarks/layouts.py --quick --json out.json          a few of them
    python benchmarks/layouts.py --modes graph --layouts tensor --json benchmarks/results/layouts.json

Tensor parallel 2 by data parallel 2, two pipeline stages by data parallel 2, and data parallel 4 whose optimizer is
divided, on MindSpore's CPU collectives, see `tests/e2e/programs/parallel_layouts.py`. A fault strikes values, gradients
or weights' gradients of one rank, three quarters of them in one run of a step only. The table says of how many

- the rank at fault, and no other, has a first-level anomaly;
- all ranks refused the update;
- weights and moments of all ranks are bit for bit what they are without the fault; for one that comes again whenever
  the step is repeated, what they were before the step;
- steps of the same training without a fault had any event at all.

What a JSON file has of other modes, layouts and seeds stays there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _ranks import ranks_of
from detection.wilson import wilson

PROGRAM = Path(__file__).parents[1] / "tests" / "e2e" / "programs" / "parallel_layouts.py"
MODES, LAYOUTS = ("graph", "pynative"), ("tensor", "pipeline", "optimizer")
RANKS, _TOLD = 4, 8


def train(mode: str, layout: str, faults: int, seed: int, timeout: float) -> list[dict[str, Any]]:
    """What each rank told, by rank."""
    with ranks_of(PROGRAM, (mode, layout, faults, seed), RANKS, "LAYOUT", timeout) as (told, _):
        return told


def tally(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts of one job, and each fault that is not as it should be."""
    counts, odd, verdicts = Counter[str](), [], Counter[str]()
    for number, fault in enumerate(ranks[0]["found"]):
        each = [rank["found"][number] for rank in ranks]
        victim = each[fault["rank"]]
        if not victim["struck"]:
            counts["struck nothing"] += 1
            continue
        events = [event for one in each for event in one["events"]]
        accused = {event[2] for event in events if event[0] == "anomaly" and event[1] == "ERROR"}
        refused = all(any(event[4] for event in one["events"]) for one in each)
        held = {
            "faults": True,
            "named": accused == {fault["rank"]},
            "others_named": bool(accused - {fault["rank"], -1}),
            "refused": refused,
            "same": all(one["same"] for one in each),
        }
        counts.update(name for name, holds in held.items() if holds)
        verdicts.update(
            f"{'again' if fault['lasts'] else 'once'}: {event[3]}" for event in events if event[0] == "replay"
        )
        if not (held["named"] and refused and held["same"]):
            told = [one["events"][:2] for one in each]
            odd.append({**{key: fault[key] for key in ("rank", "place", "fault", "lasts")}, **held, "told": told})
    names = ("faults", "named", "others_named", "refused", "same", "struck nothing")
    return {
        **{name.replace(" ", "_"): counts[name] for name in names},
        "lasting": sum(fault["lasts"] for fault in ranks[0]["found"]),
        "verdicts": dict(sorted(verdicts.items())),
        "healthy_steps": len(ranks) * ranks[0]["healthy_steps"],
        "events_in_healthy_steps": sum(len(rank["healthy"]) + len(rank["between"]) for rank in ranks),
        "told_in_healthy_steps": [text for rank in ranks for text in (*rank["healthy"], *rank["between"])][:_TOLD],
        "problems": sorted({problem for rank in ranks for problem in rank["problems"]}),
        "groups": [rank["protections"]["on"].get("groups", "") for rank in ranks],
        "odd": odd,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All rows together, with Wilson's 95 % intervals."""
    of = sum(row["faults"] for row in rows)
    found: dict[str, Any] = {"faults": of}
    for name in ("named", "others_named", "refused", "same"):
        count = sum(row[name] for row in rows)
        found[name] = {"count": count, "interval": list(wilson(count, of))}
    steps, events = (sum(row[name] for row in rows) for name in ("healthy_steps", "events_in_healthy_steps"))
    first = sum("Level.ERROR" in text for row in rows for text in row["told_in_healthy_steps"] or ())
    found["healthy"] = {"steps": steps, "events": events, "first_level": first, "interval": list(wilson(first, steps))}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and, if asked, writes the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--faults", type=int, default=34, help="in each mode and layout (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=3600.0, help="of one job, in seconds (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two faults each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    options = parser.parse_args(arguments)
    if options.faults < 1:
        parser.error("--faults must be at least 1")
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    if options.json is not None and options.json.exists():
        rows = {(row["mode"], row["layout"], row["seed"]): row for row in json.loads(options.json.read_text())["rows"]}
    for mode in options.modes:
        for layout in options.layouts:
            began = time.monotonic()
            faults = 2 if options.quick else options.faults
            row = tally(train(mode, layout, faults, options.seed, options.timeout))
            rows[mode, layout, options.seed] = {"mode": mode, "layout": layout, "seed": options.seed, **row}
            print(
                f"  {mode:<8} {layout:<9} {row['faults']:>3} faults: named {row['named']}, "
                f"another {row['others_named']}, all refused {row['refused']}, the same bits {row['same']}; "
                f"{row['events_in_healthy_steps']} events in {row['healthy_steps']} steps without a fault; "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    found = summary(list(rows.values()))
    for name in ("named", "others_named", "refused", "same"):
        low, high = found[name]["interval"]
        print(f"  {name:<12} {found[name]['count']} of {found['faults']}, {low:.1%} to {high:.1%}")
    if options.json is not None:
        report = {
            "benchmark": "layouts",
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "summary": found,
            "rows": [rows[key] for key in sorted(rows)],
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

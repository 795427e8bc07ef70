"""How soon an intermittent device is named and isolated, in jobs of real ranks, and who else is.

    python -m benchmarks.devices                                20 jobs of 4 ranks, an hour on 2 cores
    python -m benchmarks.devices --jobs 2 --steps 60 --json out.json

A job trains a small Llama in data parallel under msrun, with the default and `ASD_ON_ANOMALY=skip`. On one rank each
matrix product is wrong with a chance from step 50 on; what it is wrong by is one of the shapes of real faults, by the
seed. The events of all ranks go through the handler's policy. Of each job is told: after
how many steps and wrong results the device had its first first-level anomaly, and was isolated; whether another one
was; and by how much the loss had been off until then, beside the same job without a fault.

What a JSON file has of other seeds stays there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asd.event import Event
from asd.handler import Policy
from asd.rundir.names import event_files
from asd.verdict import Level
from benchmarks._ranks import ranks_of
from benchmarks._wilson import wilson
from benchmarks.devices.simulation import simulate

PROGRAM = Path(__file__).with_name("job.py")
PATTERNS = ("zero=8", "zero_columns=8", "zero_tile=8", "runs=8", "low_bit=12", "flip=27", "factor=1.5", "offset=0.5")
"""By the seed; see `asd demo --help`."""
_FIRST = 50
"""As in job.py, the first step with a fault."""
WITHIN = 200
"""Wrong results after which the device should be out."""


def job(ranks: int, steps: int, seed: int, chance: float, timeout: float) -> tuple[list[dict[str, Any]], list[Event]]:
    """What each rank told, and all events."""
    victim, pattern = seed % ranks, PATTERNS[seed % len(PATTERNS)]
    given = (steps, seed, victim if chance else -1, pattern, chance or 1.0)
    with ranks_of(PROGRAM, given, ranks, "DEVICE", timeout) as (told, folder):
        lines = [line for file in event_files(folder / "asd_run") for line in file.read_text().splitlines()]
    return told, [Event.from_json(line) for line in lines]


def judge(told: Sequence[dict[str, Any]], events: Sequence[Event], healthy: Sequence[float]) -> dict[str, Any]:
    """One job with a device at fault.

    Args:
        told: By each rank.
        events: Of all ranks.
        healthy: The losses of the same job without a fault, of rank 0.
    """
    ranks = {each["rank"]: each for each in told}
    victim = next((rank for rank, each in ranks.items() if each["wrong"]), None)
    if victim is None:
        raise SystemExit("no result was wrong: more steps or a larger --chance are needed.")
    wrong, ended = ranks[victim]["wrong"], ranks[victim]["ended"]
    first = [event for event in events if event.kind == "anomaly" and event.level is Level.ERROR]
    own = [event for event in first if event.rank == victim]
    devices = simulate(events, Policy())
    out = next((each for each in devices if each.rank == victim), None)
    row: dict[str, Any] = {
        "steps": len(ended), "wrong": len(wrong), "calls": ranks[victim]["calls"],
        "others_with_an_anomaly": sorted({event.rank for event in first} - {victim}),
        "others_isolated": [each.rank for each in devices if each.rank != victim],
        "problems": sorted({each["problems"] for each in told}),
    }  # fmt: skip
    if own:
        step = min(event.step for event in own)
        row |= {"named_step": step, "named_wrong": sum(each <= step for each in wrong)}
    if out is not None:
        step = next((number for number, when in enumerate(ended, 1) if when >= out.time), len(ended))
        row |= {"isolated_step": step, "isolated_wrong": sum(each <= step for each in wrong), "why": out.why}
    until = row.get("isolated_step", len(ended))
    ours = ranks[0]["losses"] if 0 in ranks else told[0]["losses"]
    row["loss_off"] = max(abs(one - other) for one, other in zip(ours[:until], healthy[:until], strict=True))
    return row


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All jobs, with Wilson's 95 % interval."""
    soon = [row for row in rows if row.get("isolated_wrong", WITHIN + 1) <= WITHIN]
    return {
        "jobs": len(rows), "isolated_within": {"wrong_results": WITHIN, "jobs": len(soon)},
        "interval": list(wilson(len(soon), len(rows))),
        "another_isolated": sum(bool(row["others_isolated"]) for row in rows),
        "wrong_results_until_isolated": sorted(row["isolated_wrong"] for row in soon),
        "same_losses": sum(row["loss_off"] == 0 for row in rows),
    }  # fmt: skip


def by_kind(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The summary of each size of job and chance, with how many results were wrong and how far the loss was off."""
    kinds: dict[tuple[int, float], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault((row["ranks"], row["chance"]), []).append(row)
    return [
        {
            "ranks": ranks, "chance": chance, "wrong": sorted(job["wrong"] for job in jobs),
            "loss_off": max(job["loss_off"] for job in jobs), **summary(jobs),
        }
        for (ranks, chance), jobs in sorted(kinds.items(), key=lambda kind: (kind[0][0], -kind[0][1]))
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line a job and, if asked, writes the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20, help="(default %(default)s)")
    parser.add_argument("--ranks", type=int, default=4, help="of a job (default %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="of a job (default %(default)s)")
    parser.add_argument("--chance", type=float, default=0.01, help="of each product (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=3600.0, help="of one job, in seconds (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    options = parser.parse_args(arguments)
    if options.steps <= _FIRST or options.ranks < 2 or not 0 < options.chance <= 1:
        parser.error(f"--steps must be above {_FIRST}, --ranks at least 2, and --chance above 0 and at most 1")
    rows: dict[str, dict[str, Any]] = {}
    if options.json is not None and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    for seed in range(options.first_seed, options.first_seed + options.jobs):
        began = time.monotonic()
        healthy, _ = job(options.ranks, options.steps, seed, 0.0, options.timeout)
        told, events = job(options.ranks, options.steps, seed, options.chance, options.timeout)
        losses = next(each["losses"] for each in healthy if each["rank"] == 0)
        row = {"ranks": options.ranks, "chance": options.chance, "pattern": PATTERNS[seed % len(PATTERNS)]}
        row |= judge(told, events, losses)
        rows[f"{options.ranks} ranks, chance {options.chance:g}, seed {seed}"] = row
        print(
            f"  seed {seed:<4} {row['pattern']:<15} {row['wrong']:>4} wrong, named after {row.get('named_wrong')}, "
            f"isolated after {row.get('isolated_wrong')}; others {row['others_isolated']}; "
            f"loss off by {row['loss_off']:.3g}; {time.monotonic() - began:.0f} s",
            flush=True,
        )
        if options.json is not None:
            report = {
                "benchmark": "devices", "python": platform.python_version(), "machine": platform.machine(),
                "cores": os.cpu_count(), "summary": summary(list(rows.values())),
                "kinds": by_kind(list(rows.values())), "rows": rows,
            }  # fmt: skip
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary(list(rows.values())), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

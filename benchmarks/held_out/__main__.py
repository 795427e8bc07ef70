"""How well `NPU_ASD_ENABLE=1` alone finds faults in trainings that nothing was tuned on.

    python -m benchmarks.held_out                       all trainings; writes benchmarks/results/held_out.json
    python -m benchmarks.held_out --only mixer-graph --faults 4 --json out.json
    python -m benchmarks.held_out --only mixer-graph --faults 30 --check     1 when detection got worse

Each training is a `Model.train` of 70 steps under `asd run`, with a folder for its events and no other setting: the
first first-level anomaly ends it. A fault begins in step 44. One that strikes once is gone when the step is made again;
a lasting one strikes in every step and every run of it until the end. It strikes the result of an operator before
anybody looks at it (`product`, `dx`, `dw`), a tensor between two operators (`activation`, `gradient`), or memory
(`weight`, `moment`). Whether it harms is seen without detection: the mean loss of the last 10 steps is more than 0.02
above the healthy one, or one after step 44 more than 0.15, or one is not finite; a change of seed is measured too.
Only harmful faults are run with detection.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

from benchmarks._wilson import per_million, wilson

RESULTS = Path(__file__).resolve().parents[1] / "results" / "held_out.json"
START = 44
CELLS = {
    "mixer-graph-float32": 1,
    "grouped-graph-float32": 2,
    "residual-graph-float32": 3,
    "autoencoder-graph-float32": 4,
    "mixer-pynative-float32": 5,
    "autoencoder-pynative-float32": 6,
    "grouped-graph-float16": 7,
    "mixer-graph-float16": 8,
    "autoencoder-graph-float16": 9,
}
"""Network, mode and precision, with the seed of its faults."""


def run(cell: str, number: int, folder: Path, core: int) -> None:
    """The trainings of one network: all without detection, and those that a fault harms with it."""
    train(cell, number, folder, core, "plain", "all")
    chosen = ",".join(str(row["number"]) for row in harms(cell, folder)[1] if row["harmful"])
    train(cell, number, folder, core, "asd", chosen)


def _on_a_core(cell: str, number: int, folder: Path, free: Queue[int]) -> None:
    core = free.get()
    try:
        run(cell, number, folder, core)
    finally:
        free.put(core)


def _faults(cell: str, number: int) -> int:
    """A step in PyNative takes 70 times as long."""
    return number if "-graph-" in cell else number // 4


def train(cell: str, number: int, folder: Path, core: int, kind: str, chosen: str) -> None:
    """One process; what is there already stays."""
    out = folder / f"{cell}-{kind}"
    if out.exists():
        return
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ASD_", "NPU_ASD"))}
    program = [sys.executable, "-m", "benchmarks.held_out.train", *cell.split("-"), str(out), str(number)]
    command = [*program, str(CELLS[cell]), chosen]
    if kind == "asd":
        command = [sys.executable, "-m", "asd", "run", *command]
    environment = clean | {"ASD_RUN_DIR": str(folder / f"{cell}-rd"), "HELD_OUT_CORE": str(core)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{cell} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def harms(cell: str, folder: Path) -> tuple[list[float], list[dict[str, Any]]]:
    """The losses of the healthy training, and each fault with what it did to them."""
    healthy, *others = _lines(folder / f"{cell}-plain")
    rows = []
    for row in others:
        if row["ended"]:
            raise SystemExit(f"{cell}: a training without detection ended: {row['ended']}")
        excess = np.array(row["losses"]) - np.array(healthy["losses"])
        harmful = bool(not np.isfinite(excess).all() or excess[-10:].mean() > 0.02 or excess[START:].max() > 0.15)
        last = float(excess[-10:].mean())
        found = {
            "cell": cell,
            "number": row["number"],
            "harmful": harmful,
            "excess": last if np.isfinite(last) else None,
        }
        rows.append(found | (row["fault"] or {"another_seed": True}))
    return healthy["losses"], rows


def judged(cell: str, folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each harmful fault, and the healthy training."""
    losses, faults = harms(cell, folder)
    first, *checked = _lines(folder / f"{cell}-asd")
    rows = []
    for row in checked:
        steps = sorted(event["step"] for event in _events(row["run"]) if event["level"] == "first")
        refused = any(event["refused"] and event["step"] <= START + 1 for event in _events(row["run"]))
        step = steps[0] if steps else None
        rows.append(
            next(fault for fault in faults if fault["number"] == row["number"])
            | {
                "step": step,
                "early": bool(steps and steps[0] < START),
                "own": step == START,
                "in_20": bool(steps and START <= steps[0] < START + 20),
                "before_second": step == START or refused,
                "while": bool(steps and steps[0] >= START),
                "places": sorted({event["place"] for event in _events(row["run"])})[:3],
            }
        )
    alarms = sum(event["level"] == "first" for event in _events(first["run"]))
    clean = {"cell": cell, "faults": len(faults) - 1, "alarms": alarms, "checks": _checks(first["run"])}
    seed = next(abs(row["excess"]) for row in faults if "another_seed" in row)
    return rows, clean | {"equal": first["losses"] == losses, "loss_with_another_seed": seed}


def summary(rows: list[dict[str, Any]], clean: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts with their intervals."""
    single = [row for row in rows if row["harmful"] and not row["lasting"]]
    lasting = [row for row in rows if row["harmful"] and row["lasting"]]
    alarms, checks = (sum(each[what] for each in clean) for what in ("alarms", "checks"))
    return {
        "faults": sum(each["faults"] for each in clean),
        "harmful": len(rows),
        "own_step": _share(single, "own"),
        "within_20": _share(single, "in_20"),
        "before_second_update": _share(single, "before_second"),
        "lasting": _share(lasting, "while"),
        "alarms": alarms,
        "checks": checks,
        "per_million": per_million(alarms, checks) if checks else None,
        "alarms_before_the_fault": sum(row["early"] for row in rows),
    }


def _group(group: str, rows: list[dict[str, Any]], clean: list[dict[str, Any]]) -> dict[str, Any]:
    return summary(*([row for row in each if row["cell"].endswith(group)] for each in (rows, clean)))


def _share(rows: list[dict[str, Any]], what: str) -> dict[str, Any]:
    found = sum(row[what] for row in rows)
    return {"found": found, "of": len(rows), "wilson": wilson(found, len(rows))}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _events(run_dir: str) -> list[dict[str, Any]]:
    """The anomalies of a training."""
    found = []
    for path in Path(run_dir).glob("events-*.jsonl"):
        for line in _lines(path):
            data = line.get("data", line)
            if data.get("kind") == "anomaly":
                place = data.get("checkpoint", "")
                found.append({"level": data["level"], "step": data["step"], "refused": data["refused"], "place": place})
    return found


def _checks(run_dir: str) -> int:
    status = json.loads((Path(run_dir) / "status-rank0.json").read_text())
    return int(status["checks"])


def regressions(found: dict[str, Any], clean: list[dict[str, Any]], before: dict[str, Any] | None = None) -> list[str]:
    """What is worse than it was, in sentences; a share counts where its interval is below that of before."""
    broken = []
    for name, words in (("own_step", "single faults in their own step"), ("lasting", "lasting faults")):
        share, least = found[name], before[name]["wilson"][0] if before else 0.0
        if share["wilson"][1] < least:
            broken.append(f"{share['found']} of {share['of']} harmful {words} are found; valid is {least:.0%}.")
    alarms = found["alarms"] + found["alarms_before_the_fault"]
    if alarms:
        broken.append(f"{alarms} first-level alarms without a fault; valid is none.")
    broken += [f"the losses of {each['cell']} are others with detection." for each in clean if not each["equal"]]
    return broken


def main() -> int:
    """Runs, judges and writes; 1 when `--check` finds that detection got worse."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[""], help="what the names of the trainings begin with")
    parser.add_argument("--faults", type=int, default=105, help="faults for each network")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--check", action="store_true", help="write nothing, and end with 1 when detection got worse")
    parser.add_argument("--keep", type=Path, help="folder for the trainings; those that are there already are not run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        rows, clean = [], []
        cells = [each for each in CELLS if each.startswith(tuple(arguments.only))]
        cores = sorted(os.sched_getaffinity(0))
        with ThreadPoolExecutor(len(cores)) as pool:
            free = Queue[int]()
            for core in cores:
                free.put(core)
            for _ in pool.map(lambda cell: _on_a_core(cell, _faults(cell, arguments.faults), folder, free), cells):
                pass
        for cell in cells:
            found, healthy = judged(cell, folder)
            rows += found
            clean.append(healthy)
    groups = {each["cell"].partition("-")[2] for each in clean}
    result = {
        "command": "python -m benchmarks.held_out",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "mindspore": version("mindspore"),
        "all": summary(rows, clean),
        "by": {group: _group(group, rows, clean) for group in sorted(groups)},
        "missed": [row for row in rows if not row["own" if not row["lasting"] else "while"]],
        "healthy": clean,
        "rows": rows,
    }
    print(json.dumps(result["all"], indent=1))
    if arguments.check:
        before = json.loads(RESULTS.read_text(encoding="utf-8"))["all"] if RESULTS.exists() else None
        broken = regressions(result["all"], clean, before)
        print("\n".join(f"error: {sentence}" for sentence in broken))
        return int(bool(broken))
    arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

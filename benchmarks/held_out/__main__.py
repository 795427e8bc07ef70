"""The benchmark of detection: bad devices, in trainings that nothing was tuned on, as a user finds them.

    python -m benchmarks.held_out --number 7            all of it; hours on 2 cores
    python -m benchmarks.held_out --quick --check       a part of it, and 1 when detection got worse
    python -m benchmarks.held_out --kinds lasting --modes graph --folder out    what is in `out` is not run again

A device is bad: one kind of operator gives wrong results in all that the process computes, in graph mode and PyNative,
in the training and in what detection computes itself; or memory loses bits. A fault is harmful when the training
without detection ends with a loss 1 % above that of its healthy twin, or with weights that are apart by 5 % of the way
they went. Harmful ones are run once more, each in a process of its own, as a user would.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.held_out.faults import KINDS, MANY
from benchmarks.held_out.judging import checks, events, found, regressions, summary, table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "held_out.json"
TRAININGS = (
    *(
        f"{name}-graph-float32"
        for name in ("coder", "experts", "convolutions", "decoder", "patches", "recurrent", "graph")
    ),
    *(f"{name}-graph-float16" for name in ("patches", "coder", "recurrent", "graph")),
    *(f"{name}-pynative-float32" for name in ("coder", "convolutions", "patches", "experts", "graph")),
    "coder-pynative-float16",
)
QUICK = (
    *("coder-graph-float32", "experts-graph-float32", "convolutions-graph-float32", "patches-graph-float16"),
    *("coder-pynative-float32", "convolutions-pynative-float32"),
)
DRAWN = {"single": 40, "intermittent": 12, "lasting": 8, "range": 8, "memory": 16}
"""Faults for each training; a third of that in PyNative, whose steps take longer."""
ENVIRONMENT = {
    **{"GLOG_v": "3", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    # With AVX-512, oneDNN has only its reference convolution for plain layouts, which is fifty times slower.
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # Kernels of a few microseconds are launched where they are prepared: handing them over takes longer than they do.
    "MS_DEV_RUNTIME_CONF": "pipeline:False,inline:True",
}


class Plan(NamedTuple):
    """What is run.

    Attributes:
        number: From which everything is drawn.
        kinds: Of faults.
        cases: The most harmful faults of each kind and training that are run with detection.
        quick: Whether a fault that stays is looked at for fewer steps in PyNative.
        folder: Of the lines of JSON and the run folders.
        healthy: Steps of a training without a fault, or 0: as many as of one with a fault.
    """

    number: int
    kinds: tuple[str, ...]
    cases: int
    quick: bool
    folder: Path
    healthy: int = 0

    def spec(self, training: str, **more: Any) -> dict[str, Any]:
        """For a process."""
        slow = "-pynative-" in training
        horizon = 60 if slow and self.quick else 200
        return {"training": training, "number": self.number, "horizon": horizon, **more}

    def drawn(self, training: str) -> dict[str, int]:
        """How many faults of each kind."""
        share = 3 if "-pynative-" in training else 1
        return {"control": 1} | {kind: -(-DRAWN[kind] // share) for kind in self.kinds}


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; one that was cut off by an end is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def process(spec: dict[str, Any], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A process of the benchmark, with nothing in its environment that tells a detector anything but `more`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ASD_", "NPU_ASD"))}
    command = [sys.executable, "-m", "benchmarks.held_out.train", json.dumps(spec)]
    return subprocess.run(command, env=clean | ENVIRONMENT | more, capture_output=True, text=True)


def harm(plan: Plan, training: str) -> list[dict[str, Any]]:
    """Rows of all faults of a training, without detection; the healthy one first."""
    out = plan.folder / f"{training}.jsonl"
    kinds = plan.drawn(training)
    wanted = {"healthy"} | {f"{kind} {i}" for kind, count in kinds.items() for i in range(count)}
    rows = lines(out)
    done = {row["fault"] for row in rows}
    if wanted - done:
        out.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")  # without half a line
        spec = plan.spec(training, watched=False, kinds=kinds, done=sorted(done), out=str(out))
        ended = process(spec, {})
        if ended.returncode:
            raise SystemExit(f"{training} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return [row for row in lines(out) if row["fault"] in wanted]


def watched(plan: Plan, training: str, row: dict[str, Any]) -> dict[str, Any]:
    """One training with detection, in a process and a run folder of its own; what it left, and how it ended."""
    name = f"{training} {row['fault']}"
    folder = plan.folder / "runs" / name.replace(" ", "-")
    out = folder / "told.jsonl"
    if not (folder / "ended").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        spec = plan.spec(training, watched=True, fault=row.get("drawn"), healthy=plan.healthy, out=str(out))
        ended = process(spec, {"NPU_ASD_ENABLE": "1", "ASD_RUN_DIR": str(folder)})
        if not out.exists():
            raise SystemExit(f"{name} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
        (folder / "ended").write_text(f"{ended.returncode}\n{ended.stderr[-2000:]}", encoding="utf-8")
    code = int((folder / "ended").read_text(encoding="utf-8").split("\n", 1)[0])
    return lines(out)[-1] | {"code": code, "events": events(folder), "checks": checks(folder)}


def one_case(plan: Plan, training: str, row: dict[str, Any]) -> dict[str, Any]:
    """A fault, with whether it was found."""
    told = watched(plan, training, row)
    strike = told["strike"] and told["strike"]["step"]
    if row["kind"] == "single" and told["strike"] != row["strike"]:
        return row | {"another_call": True}  # what was found says nothing about the call that did harm
    row |= found(told["events"], strike, "CPU:0") | {"code": told["code"], "wrong_results": told["strikes"]}
    if row["kind"] == "intermittent" and (row["steps"] is not None or told["strikes"] >= MANY):
        row["in_many"] = row["steps"] is not None  # else it was not wrong as often as that
    return row


def one_healthy(plan: Plan, training: str, row: dict[str, Any]) -> dict[str, Any]:
    """A training without a fault."""
    told = watched(plan, training, {"fault": "healthy"})
    alarms = sum(event["level"] == "first" for event in told["events"])
    both = min(len(told["losses"]), len(row["losses"]))
    equal = both > 0 and told["losses"][:both] == row["losses"][:both]
    return {"training": training, "steps": told["step"], "checks": told["checks"], "alarms": alarms, "equal": equal}


def chosen(plan: Plan, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The harmful faults to run with detection: the first of each kind."""
    seen: Counter[str] = Counter()
    for row in rows:
        if row["harmful"] and seen[row["kind"]] < plan.cases:
            seen[row["kind"]] += 1
            yield row


def run(plan: Plan, trainings: tuple[str, ...], workers: int) -> dict[str, Any]:
    """All trainings of a plan; the rows of every fault, and the healthy ones."""
    with ThreadPoolExecutor(workers) as pool:
        rows, healthy = [], []
        work: list[tuple[Any, ...]] = []
        for training, all_rows in zip(trainings, pool.map(lambda each: harm(plan, each), trainings), strict=True):
            first, *struck = all_rows
            told = {"training": training, "mode": training.split("-")[1]}
            faults = [told | row | {"kind": row["drawn"]["kind"]} for row in struck]
            run_again = list(chosen(plan, (row for row in faults if row["kind"] != "control")))
            work += [(one_healthy, training, first), *((one_case, training, row) for row in run_again)]
            rows += [row for row in faults if row not in run_again]
        print(f"{len(work)} trainings with detection", file=sys.stderr, flush=True)
        for done, row in zip(work, pool.map(lambda each: each[0](plan, *each[1:]), work), strict=True):
            (healthy if done[0] is one_healthy else rows).append(row)
    controls = [row for row in rows if row["kind"] == "control"]
    rows = [row for row in rows if row["kind"] != "control"]
    harmed = [row["training"] for row in controls if row["harmful"]]
    return summary(rows, healthy) | {"harmed_by_the_last_bit": harmed, "trainings": healthy, "rows": rows}


def main() -> int:
    """Runs, prints and writes; 1 when `--check` finds that detection got worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--number", type=int, default=20261127, help="networks, seeds, schedules and faults follow from it"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of faults (default: all)")
    parser.add_argument("--modes", nargs="+", choices=("graph", "pynative"), default=("graph", "pynative"))
    parser.add_argument(
        "--cases", type=int, help="most harmful faults of a kind and training to run (default: 8; quick: 2)"
    )
    parser.add_argument("--quick", action="store_true", help="six trainings, shorter ones in PyNative")
    parser.add_argument("--healthy", type=int, default=0, metavar="STEPS", help="of each training without a fault")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=2, help="processes (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="keeps what was run; what is there already is not run again")
    parser.add_argument("--json", type=Path, help="write the result there")
    parser.add_argument(
        "--check", action="store_true", help="end with 1 when detection got worse than in benchmarks/results"
    )
    options = parser.parse_args()
    cases = options.cases or (2 if options.quick else 8)
    if options.number < 0 or cases < 1 or options.healthy < 0:
        parser.error("--number and --healthy are at least 0 and --cases at least 1")
    with tempfile.TemporaryDirectory() as made:
        folder = (options.folder or Path(made)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(options.number, tuple(options.kinds), cases, options.quick, folder, options.healthy)
        modes = tuple(f"-{mode}-" for mode in options.modes)
        trainings = tuple(
            each for each in (QUICK if options.quick else TRAININGS) if any(mode in each for mode in modes)
        )
        result = run(plan, trainings, options.workers)
    print(table(result))
    quick = " --quick" * options.quick
    about = {
        "command": f"python -m benchmarks.held_out{quick} --number {options.number}",
        "mindspore": version("mindspore"),
    }
    about |= {"machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    if options.json:
        options.json.write_text(json.dumps(about | result, indent=1) + "\n", encoding="utf-8")
    broken = regressions(result, json.loads(RESULTS.read_text(encoding="utf-8"))) if options.check else []
    print("".join(f"error: {sentence}\n" for sentence in broken), end="")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

"""What compiling with the debugger costs in graph mode: processor time of first steps, each in a process of its own.

    python benchmarks/first_step.py                        without a debugger, with one at `L0`, `mix` and in rounds
    python benchmarks/first_step.py --levels bare L0 --repeat 1 --json out.json

A round, `inside:` and the path of a module, records what that module calls itself: the rounds are those that lead to a
call of the attention. The model is mindformers' Llama of one layer. Processor time, for a compiler is one thread and a
machine may be busy; what one step computes takes a few milliseconds of it. Bounds: `L0` 1.5 times what it takes
without, `mix` and each round 3 times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics as stats
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

ROUNDS = ("inside:", "inside:model", "inside:model.layers.0", "inside:model.layers.0.attention")
BOUNDS = {"L0": 1.5, "mix": 3.0, **dict.fromkeys(ROUNDS, 3.0)}


def first_step(level: str) -> float:
    """Seconds of processor time of a first step in this process."""
    from mindspore import Tensor, nn

    from asd.dumps.record.debugger_config import DebuggerConfig
    from asd.operators import PrecisionDebugger
    from asd.operators.drill.workload import Workload, batches, build, use_mode

    use_mode("graph")
    workload = Workload(hidden=16, layers=1, heads=2, intermediate=32, sequence=8, batch=2)
    net, optimizer = build(workload)
    step, batch = nn.TrainOneStepCell(net, optimizer), Tensor(next(batches(workload)))
    with tempfile.TemporaryDirectory() as folder:
        _, is_round, inside = level.partition("inside:")
        config: dict[str, Any] = {"level": "mix" if is_round else level, "dump_path": folder}
        if is_round:
            config["statistics"] = {"inside": inside}
        debugger = PrecisionDebugger(DebuggerConfig.of(config)) if level != "bare" else None
        began = time.process_time()
        if debugger is not None:
            debugger.start(net)
        step(batch).asnumpy()
        if debugger is not None:
            debugger.stop()
        return time.process_time() - began


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--levels", nargs="+", default=["bare", *BOUNDS])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="`L0` alone and once, to see that it runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # of these processes
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.one:
        print(first_step(options.one))
        return
    if options.quick:
        options.levels, options.repeat = ["bare", "L0"], 1
    seconds: dict[str, list[float]] = {level: [] for level in options.levels}
    for _ in range(options.repeat):
        for level, found in seconds.items():
            command = [sys.executable, __file__, "--one", level]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            found.append(float(done.stdout.split()[-1]))
            print(f"{level:32} {found[-1]:.2f} s of processor time", flush=True)
    for level, found in seconds.items():
        if level in BOUNDS and "bare" in seconds:
            ratio = stats.median(found) / stats.median(seconds["bare"])
            print(f"{level:32} {ratio:.2f} times (at most {BOUNDS[level]})")
    if options.json:
        options.json.write_text(json.dumps({"seconds": seconds, "bounds": BOUNDS}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What the debugger costs: processor time of a step with a dump over that without, in pairs, and equal losses.

    python benchmarks/debugging_cost.py                   all kinds of dump
    python benchmarks/debugging_cost.py --quick --json out.json

The model is mindformers' Llama of `asd.demo.llama`, the large one. Time is that of all threads.
"""

import argparse
import json
import os
import shutil
import statistics as stats
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

from _measured import write
from mindspore import Tensor, nn

from asd.demo.llama import LARGE, SMALL, Workload, batches, build, use_mode
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger

DUMPS = (*((level, task) for task in ("statistics", "md5") for level in ("L0", "L1", "mix")), ("mix", "tensor"))
"""Level and task of each kind of dump."""


def cost(workload: Workload, level: str, task: str, pairs: int, folder: Path) -> dict[str, Any]:
    """Median of the ratios of pairs of steps; both trainings see the same batches and must have the same losses."""
    use_mode("pynative")
    debugger = PrecisionDebugger(DebuggerConfig.of({"task": task, "level": level, "dump_path": str(folder)}))
    steps = []
    for watched in (False, True):
        net, optimizer = build(workload)
        steps.append((nn.TrainOneStepCell(net, optimizer), net, watched))
    source = batches(workload)
    ratios, bare = [], []
    for pair in range(pairs + 1):
        batch = Tensor(next(source))
        times, losses = {}, {}
        for step, net, watched in steps if pair % 2 else steps[::-1]:
            start = time.process_time()
            if watched:
                debugger.start(net)
            loss = step(batch)
            losses[watched] = float(loss.asnumpy())
            if watched:
                debugger.stop()
                debugger.step()
            times[watched] = time.process_time() - start
        assert losses[True] == losses[False], "the debugger changed the loss"
        if pair < pairs:  # one dump of tensors takes gigabytes
            shutil.rmtree(folder / f"step{pair}")
        if pair > 0:  # the first makes room
            ratios.append(times[True] / times[False])
            bare.append(times[False])
    entries = len(json.loads((folder / f"step{pairs}" / "rank0" / "dump.json").read_text())["data"])
    return {
        "task": task,
        "level": level,
        "entries": entries,
        "bare_ms": 1e3 * stats.median(bare),
        "ratio": stats.median(ratios),
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="a small model and few steps, to see that it runs")
    parser.add_argument("--pairs", type=int, help="of steps, for each kind of dump")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    workload, pairs = (SMALL, 2) if options.quick else (LARGE, 15)
    rows = []
    for level, task in DUMPS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(cost(workload, level, task, options.pairs or pairs, Path(folder)))
        print(rows[-1], flush=True)
    if options.json:
        write(options.json, {"rows": rows})


if __name__ == "__main__":
    main()

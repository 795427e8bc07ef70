"""What a replay costs: each step while none is needed, a whole replay when one is, and the hash of the weights.

    python benchmarks/replay.py                          all of it
    python benchmarks/replay.py --quick --json out.json

Steps with and without `ASD_OPTIONS=replay:1` are timed in turns of equal trainings, so that what else the machine does
meets both alike. What `remember` does before each step is timed alone too, for a whole step can't resolve
less than about 2 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics as stats
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")
os.environ.setdefault("LOCAL_DEFAULT_PATH", tempfile.mkdtemp())

import mindspore as ms
import numpy as np
from _timing import spread, timed
from _turns import Step, in_turns
from mindspore import Tensor, nn

from asd import Config
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import FaultInjector
from asd.operators.drill.workload import LARGE, SMALL, Workload, batches, build, use_mode
from asd.operators.ranks.weights import hash_of

BARE = Config(protection="document", enable=1, on_anomaly="skip")
TIERS = Config(protection="document", enable=1, on_anomaly="skip", rule="adaptive")
CONFIRMING = Config(protection="document", enable=1, on_anomaly="skip", rule="adaptive", confirm=0.01)


class _Training:
    def __init__(self, workload: Workload, fault: str = "", *, replay: bool, config: Config = BARE) -> None:
        net, optimizer = build(workload)
        self.cell = nn.TrainOneStepCell(net, optimizer)
        self.events: list[Any] = []
        self.monitor = StepMonitor(config, sinks=[self.events.append], replay=replay)
        self.monitor.attach(self.cell, optimizer)
        self.injector = FaultInjector(Fault.parse(fault)) if fault else None
        if self.injector is not None:
            self.injector.attach(self.cell)
        self.watched = self.monitor.watch_step(self.cell)

    def step(self, batch: Tensor) -> float:
        if self.injector is not None:
            self.injector.begin_step()
        loss = self.watched(batch)
        self.monitor.step(loss)
        return float(loss.asnumpy())


def each_step(workload: Workload, mode: str, turns: int, *, confirms: bool = False) -> dict[str, Any]:
    """A step with `ASD_OPTIONS=replay:1`, or with `confirm`, over one without, and what precedes each step alone."""
    use_mode(mode)
    trainings: list[_Training] = []

    def build_one(*, ours: bool) -> Step:
        config = (CONFIRMING if ours else TIERS) if confirms else BARE
        training = _Training(workload, replay=ours and not confirms, config=config)
        trainings.append(training)
        return training.step

    found = in_turns(lambda: build_one(ours=False), lambda: build_one(ours=True), batches(workload), turns)
    ours, batch = trainings[1], Tensor(next(batches(workload)))
    remembered = [timed(ours.monitor.remember, ours.cell, batch) for _ in range(turns)]
    for training in trainings:
        training.monitor.close()
    share = stats.median(remembered) / stats.median(found.step_seconds)
    return {**found.summary(), "remember_seconds": spread(remembered), "remember_share": share}


def one_replay(workload: Workload, mode: str, rounds: int) -> dict[str, Any]:
    """A whole replay of a step with a fault that is always there, in steps; at most two are allowed."""
    use_mode(mode)
    first = 4
    training = _Training(workload, f"gradient:norm_out:flip=30:step={first}:duration={rounds}", replay=True)
    source = batches(workload)
    steps, replays = [], []
    for number in range(1, first + rounds):
        batch = Tensor(next(source))
        began = time.perf_counter()
        training.injector.begin_step()
        loss = training.watched(batch)
        loss.asnumpy()
        middle = time.perf_counter()
        training.monitor.step(loss)
        if number >= first:
            steps.append(middle - began)
            replays.append(time.perf_counter() - middle)
    assert sum(event.kind == "replay" for event in training.events) == rounds
    training.monitor.close()
    in_steps = [replay / step for replay, step in zip(replays, steps, strict=True)]
    return {"step_seconds": spread(steps), "replay_in_steps": spread(in_steps)}


def hashing(megabytes: int, repeats: int) -> dict[str, Any]:
    """Milliseconds for so many megabytes of weights."""
    weights = np.random.default_rng(0).standard_normal(megabytes * 250_000).astype(np.float32)
    times = [1000 * timed(lambda: hash_of(weights)) for _ in range(repeats)]
    return {"megabytes": megabytes, "milliseconds": spread(times)}


def main() -> None:
    """Runs everything and prints it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that it runs")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args()
    result: dict[str, Any] = {"quick": args.quick, "mindspore": ms.__version__, "cores": os.cpu_count()}
    result["hash"] = hashing(100, 3 if args.quick else 30)
    print(json.dumps({"hash": result["hash"]}, indent=1), flush=True)
    for name, workload in (("small", SMALL), ("large", LARGE)):
        for mode in ("graph", "pynative"):
            if args.quick and name == "large":
                continue
            key = f"{name}, {mode}"
            result[key] = {
                "each_step": each_step(workload, mode, 4 if args.quick else 40 if mode == "graph" else 12),
                "each_step_confirming": each_step(workload, mode, 4 if args.quick else 24, confirms=True),
                "one_replay": one_replay(workload, mode, 2 if args.quick else 10),
            }
            print(json.dumps({key: result[key]}, indent=1), flush=True)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What detection costs: whole steps in turns, one check alone, and memory.

    python benchmarks/overhead.py                        all of it, about two hours on 2 cores
    python benchmarks/overhead.py --parts chain memory   only these
    python benchmarks/overhead.py --parts steps --rows 'large, graph'
    python benchmarks/overhead.py --quick --json out.json

Parts and rows that are not measured keep the figures that the file given by `--json` has.

A whole step can't resolve less than about 2 %, so two other figures stand beside it: the share of the step that
detection measured itself, and what one check costs alone, from which a share is computed. Nothing else heavy may run at
the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")
os.environ.setdefault("LOCAL_DEFAULT_PATH", tempfile.mkdtemp())

import mindspore as ms
import numpy as np
from _timing import spread, timed
from _turns import Step, in_turns
from mindspore import Tensor, nn, ops

from asd import Config
from asd.operators import StepMonitor
from asd.operators.drill.workload import LARGE, SMALL, Workload, batches, build, use_mode
from asd.operators.measure.tap import make_tap
from asd.operators.table import slots

LINEAR = r"\.(wq|wk|wv|wo|w1|w2|w3)$"
"""With these every layer of the Llama is checked, not only norms and the embedding."""


def whole_step(workload: Workload, mode: str, include: str | tuple[()], turns: int, config: Config) -> dict[str, Any]:
    """Step time with detection over step time without, in turns, equal trainings in one process.

    Returns:
        `ratio` of the times of a turn, which is one step, or with tiers as many as it takes until everything that is
        not read in every step has been read; and `in_checks`, the share of the checked steps that detection measured
        itself on the host. It leaves out what its operators take on the device.
    """
    use_mode(mode)
    monitors: list[StepMonitor] = []

    def bare() -> Step:
        cell = nn.TrainOneStepCell(*build(workload))
        return lambda batch: float(cell(batch).asnumpy())

    def checked() -> Step:
        net, optimizer = build(workload)
        monitor = StepMonitor(config, sinks=[], include=include)
        monitors.append(monitor)
        cell = nn.TrainOneStepCell(net, optimizer)
        monitor.attach(cell, optimizer)
        watched = monitor.watch_step(cell)  # as `Model.train` does

        def step(batch: Tensor) -> float:
            loss = watched(batch)
            monitor.step(loss)
            return float(loss.asnumpy())

        return step

    steps = 16 if config.rule == "adaptive" else 1
    found = in_turns(
        bare,
        checked,
        batches(workload),
        turns,
        steps=steps,
        warm_up=3 if config.rule == "threshold" else 64,  # until the pace at which the state is read has settled
        inside=lambda: sum(monitor.monitor.status.check_seconds for monitor in monitors),
    )
    for monitor in monitors:
        monitor.close()
    judged = monitors[0].monitor
    return {
        "checkpoints": len(judged.history),
        "megabytes": sum(4 * reading.elements * reading.calls for reading in judged.readings) / 1e6,
        "steps_a_turn": steps,
        **found.summary(),
        "in_checks": spread(found.shares),
    }


class _Chain(nn.Cell):
    """Layers with or without a tap on each. Nothing simpler than a tanh: the compiler merges a chain of products."""

    def __init__(self, taps: list[Any]) -> None:
        super().__init__()
        self.taps = taps

    def construct(self, x):
        for tap in self.taps:
            x = ops.tanh(tap(x))
        return x.sum()


def chain(mode: str, elements: int, repeats: int) -> dict[str, Any]:
    """Cost of one check alone, from a chain of 16 with taps and one without, interleaved."""
    use_mode(mode)
    length = 16
    sites = [slots.table().new_site(f"chain.{i}") for i in range(length)]
    data = Tensor(np.random.default_rng(0).standard_normal(elements).astype(np.float32))
    with_taps, without = (
        ms.value_and_grad(_Chain(taps), grad_position=0)
        for taps in ([make_tap(site) for site in sites], [ops.identity] * length)
    )
    if mode == "graph":
        with_taps, without = ms.jit(with_taps), ms.jit(without)

    def run(function: Callable[[Tensor], Any]) -> None:
        function(data)[1].asnumpy()

    for function in (with_taps, without, with_taps, without):
        run(function)
    slots.table().read(sites)
    costs = []
    for _ in range(repeats):
        costs.append((timed(run, with_taps) - timed(run, without)) / length * 1e6)
    readings = slots.table().read(sites)
    assert all(reading.calls == repeats for reading in readings)
    return {"bytes": elements * 4, "microseconds_a_check": spread(costs)}


def memory(mode: str, steps: int) -> dict[str, Any]:
    """Resident memory after a tenth of the steps and at the end, with detection on."""
    use_mode(mode)
    net, optimizer = build(SMALL)
    monitor = StepMonitor(Config(protection="document", enable=1), sinks=[])
    train = nn.TrainOneStepCell(net, optimizer)
    monitor.attach(train, optimizer)
    source = batches(SMALL)
    marks = {}
    for step in range(1, steps + 1):
        monitor.step(train(Tensor(next(source))))
        if step in {steps // 10, steps}:
            marks[step] = resident()
    monitor.close()
    first, last = marks[steps // 10], marks[steps]
    return {"steps": steps, "megabytes_at_a_tenth": first, "megabytes_at_the_end": last, "growth": last - first}


class _Tiny(nn.Cell):
    """A net so small that ten thousand PyNative steps take minutes; its output is its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.SequentialCell([nn.SequentialCell(nn.Dense(16, 16), nn.LayerNorm((16,))) for _ in range(2)])

    def construct(self, x):
        return (self.layers(x) - 1).square().mean()


def memory_pynative(steps: int) -> dict[str, Any]:
    """Growth of resident memory in PyNative from a tenth of the steps on, without detection and with it.

    MindSpore's own PyNative training grows as well, so the two have to be compared.
    """
    use_mode("pynative")
    result: dict[str, Any] = {"steps": steps}
    for name in ("without detection", "with detection"):
        net = _Tiny()
        optimizer = nn.Adam(net.trainable_params())
        train = nn.TrainOneStepCell(net, optimizer)
        monitor = StepMonitor(Config(protection="document", enable=int(name == "with detection")), sinks=[])
        monitor.attach(train, optimizer)
        data = Tensor(np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32))
        first = 0.0
        for step in range(1, steps + 1):
            loss = train(data)
            monitor.step(loss)
            loss.asnumpy()
            if step == steps // 10:
                first = resident()
        result[f"megabytes grown {name}"] = resident() - first
        monitor.close()
    return result


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def shares(result: dict[str, Any]) -> dict[str, float]:
    """Part of the large Llama's step that its checks take, from the cost of one check alone.

    It is in proportion to the bytes: a check of the larger size of the chain, that of a gradient of a norm of this
    model, costs hardly more than reading it.
    """
    computed = {}
    for mode, chains in result["chain"].items():
        a_byte = chains[-1]["microseconds_a_check"]["median"] * 1e-6 / chains[-1]["bytes"]
        for checkpoints in ("document", "all"):
            step = result["steps"].get(f"large, {mode}, {checkpoints}", {})
            if "megabytes" in step:
                computed[f"{mode}, {checkpoints}"] = 1e6 * step["megabytes"] * a_byte / step["step_seconds"]["median"]
    return computed


def main() -> None:
    """Runs the chosen parts and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("chain", "steps", "memory")
    parser.add_argument("--parts", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--rows", default="", metavar="REGEX", help="of the whole steps only these, by their names")
    parser.add_argument("--turns", type=int, help="of a whole step (default: as many as two hours take)")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that it runs")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args()
    result: dict[str, Any] = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    result["where"] = where()
    for part in args.parts:
        if part == "steps":
            measured = steps_part(re.compile(args.rows), quick=args.quick, most=args.turns)
            result[part] = {**result.get(part, {}), **measured}
        else:
            measured = result[part] = PARTS[part](args.quick)
        print(json.dumps({part: measured}, indent=1), flush=True)
    if {"chain", "steps"} <= set(result):
        result["computed_share"] = shares(result)
        print(json.dumps({"computed_share": result["computed_share"]}, indent=1))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def where() -> dict[str, Any]:
    """Machine and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    packages = {name: version(name) for name in ("mindspore", "mindformers", "numpy")}
    return {"processor": model, "cores": os.cpu_count(), "python": platform.python_version(), **packages}


def steps_part(chosen: re.Pattern[str], *, quick: bool, most: int | None = None) -> dict[str, Any]:
    """Every model, mode and choice of checkpoints; the outputs and states that the tiers read on the large model."""
    rows = {}
    for name, workload, turns in (
        ("large", LARGE, {"graph": 320, "pynative": 16}),
        ("small", SMALL, {"graph": 200, "pynative": 40}),
    ):
        for mode in ("graph", "pynative"):
            for checkpoints, include, settings in (
                ("document", (), {"protection": "document"}),
                ("all", LINEAR, {"protection": "document"}),
                ("tiers", (), {"protection": "document", "rule": "adaptive"}),
                ("full", (), {}),
            ):
                row = f"{name}, {mode}, {checkpoints}"
                if chosen.search(row):
                    config = Config(enable=1, **settings)
                    usual = turns[mode] if config.rule == "threshold" else max(turns[mode] // 10, 4)
                    found = whole_step(workload, mode, include, 4 if quick else most or usual, config)
                    rows[row] = {"processor": where()["processor"], **found}
    return rows


PARTS: dict[str, Callable[[bool], Any]] = {
    "chain": lambda quick: {
        mode: [chain(mode, n, 5 if quick else 60) for n in (8192, 524288)] for mode in ("graph", "pynative")
    },
    "memory": lambda quick: {
        "graph": memory("graph", 200 if quick else 10_000),
        "pynative": memory_pynative(200 if quick else 10_000),
    },
}


if __name__ == "__main__":
    main()

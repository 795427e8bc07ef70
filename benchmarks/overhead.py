"""What detection costs on a CPU, as it is shipped: whole steps with it and without it in turns.

    python benchmarks/overhead.py --json benchmarks/results/overhead.json       all of it, half an hour on 2 cores
    python benchmarks/overhead.py --parts steps --rows 'large, graph'
    python benchmarks/overhead.py --quick

Rows that are not measured keep the figures that the file given by `--json` has. Nothing else heavy may run meanwhile.
What it costs on a device is counted from compiled graphs: `make cost`.
"""

import argparse
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")
os.environ.setdefault("LOCAL_DEFAULT_PATH", tempfile.mkdtemp())

from _measured import write
from _turns import Step, in_turns
from mindspore import Tensor, nn
from mindspore.ops import Primitive

from asd import Config
from asd.demo.llama import LARGE, SMALL, Workload, batches, build, use_mode
from asd.operators import StepMonitor
from asd.operators.rerun import pieces, work

SIX_BLOCKS = replace(SMALL, hidden=256, layers=6, heads=8, intermediate=688, sequence=128)
MODELS = {"large": LARGE, "six blocks": SIX_BLOCKS, "small": SMALL}
TURNS = {"large": 6, "six blocks": 8, "small": 24}
LLAMA_7B = [(4096, 512)] * 128 + [(4096, 1376)] * 96 + [(4000, 4096)] * 2
"""Weights of one of eight ranks that divide the network by operators."""
STEPS = 16
"""Of a turn: what is read or computed again now and then is due once in so many."""


def whole_step(workload: Workload, mode: str, turns: int) -> dict[str, Any]:
    """Step time with detection over step time without, in turns, equal trainings in one process.

    Returns:
        Medians and quartiles: `ratio` of the times of a turn, `processor` of the processor's times, `first` of the
        processor's times of first steps.
    """
    use_mode(mode)
    monitors: list[StepMonitor] = []

    def bare() -> Step:
        cell = nn.TrainOneStepCell(*build(workload))
        return lambda batch: float(cell(batch).asnumpy())

    def checked() -> Step:
        net, optimizer = build(workload)
        monitor = StepMonitor(Config(enable=1, run_dir=tempfile.mkdtemp()))
        monitors.append(monitor)
        cell = nn.TrainOneStepCell(net, optimizer)
        monitor.attach(cell, optimizer)
        watched = monitor.watch_step(cell)  # as `Model.train` does

        def step(batch: Tensor) -> float:
            loss = watched(batch)
            monitor.step(loss)
            return float(loss.asnumpy())

        return step

    found = in_turns(bare, checked, batches(workload), turns, steps=STEPS)
    for monitor in monitors:
        monitor.close()
    return {"places": len(monitors[0].monitor.history), **found.summary()}


def where() -> dict[str, Any]:
    """Machine and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    packages = {name: version(name) for name in ("mindspore", "mindformers", "numpy")}
    return {"processor": model, "cores": os.cpu_count(), "python": platform.python_version(), **packages}


def steps_part(chosen: re.Pattern[str], *, quick: bool) -> dict[str, Any]:
    """Every model and mode."""
    rows = [(f"{name}, {mode}", name, mode) for name in MODELS for mode in ("graph", "pynative")]
    return {
        row: whole_step(MODELS[name], mode, 2 if quick else TURNS[name])
        for row, name, mode in rows
        if chosen.search(row)
    }


class _Counted:
    """An operator that counts its launch, and the bytes that it reads and writes."""

    def __init__(self, bare: Callable[..., Any], total: dict[str, int]) -> None:
        self.bare, self.total = bare, total

    def __call__(self, *given: Any) -> Any:
        """What the operator returns."""
        found = self.bare(*given)
        self.total["launches"] += 1
        self.total["bytes"] += sum(each.nbytes for each in _tensors([given, found]))
        return found


def _tensors(some: Any) -> Iterator[Tensor]:
    for each in some:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)


@contextmanager
def _counting() -> Iterator[dict[str, int]]:
    """Counts what the operators of known-answer tests read and write, and what is copied between host and device."""
    total: dict[str, int] = {}
    bare, init, to_host = [vars(module).copy() for module in (work, pieces)], Tensor.__init__, Tensor.asnumpy

    def upload(self: Tensor, given: Any = None, *more: Any, **settings: Any) -> None:
        total["uploads"] += not isinstance(given, Tensor)
        init(self, given, *more, **settings)

    def read(self: Tensor) -> Any:
        total["reads"] += 1
        return to_host(self)

    for module, names in zip((work, pieces), bare, strict=True):
        operators = {name: each for name, each in names.items() if isinstance(each, Primitive)}
        vars(module).update({name: _Counted(each, total) for name, each in operators.items()})
    Tensor.__init__, Tensor.asnumpy = upload, read
    yield total
    Tensor.__init__, Tensor.asnumpy = init, to_host
    for module, names in zip((work, pieces), bare, strict=True):
        vars(module).update(names)


def probe_part(chosen: re.Pattern[str], *, quick: bool) -> dict[str, Any]:
    """What a turn of the known-answer tests does once operands are there, in the sizes of a rank of Llama-2 7B."""
    use_mode("pynative")
    sizes, found = work.Sizes.of([(64, 64)] if quick else LLAMA_7B), {}
    others = [
        each for kind, tests in pieces.PIECES.items() if kind not in ("products", "convolutions") for each in tests
    ]
    products = {each.name: each for each in pieces.PIECES["products"] if each.name.startswith("MatMul, ")}
    with _counting() as total:
        device = work.DeviceUnderTest(sizes, pieces.blocks())
        for name in (each for each in products if "bfloat16" not in each and chosen.search(each)):
            due = (products[name], *others[4::6][:8])
            due = [each._replace(compute=_Counted(each.compute, total)) for each in due]
            for turn in range(2):  # the first one makes operands
                total |= dict.fromkeys(("launches", "bytes", "uploads", "reads"), 0)
                if device.test(due, turn):
                    raise SystemExit("this device computes wrongly, or a known answer is wrong")
            operations = 2 * sizes.rows * sizes.columns * min(sizes.terms, products[name].factors.terms)
            found[name.partition(", ")[2]] = {**total, "operations": operations}
    return found


PARTS: dict[str, Callable[..., dict[str, Any]]] = {"steps": steps_part, "probe": probe_part}


def main() -> None:
    """Runs the chosen parts and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--rows", default="", metavar="REGEX", help="only these, by their names")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that it runs")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args()
    result: dict[str, Any] = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    if args.parts == list(PARTS) and not args.rows:
        result.pop("measured", None)  # else the older commit stays, and is the one that counts
    result["where"] = where()
    for part in args.parts:
        measured = PARTS[part](re.compile(args.rows), quick=args.quick)
        result[part] = {**result.get(part, {}), **measured}
        print(json.dumps({part: measured}, indent=1), flush=True)
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            write(args.json, result)


if __name__ == "__main__":
    main()

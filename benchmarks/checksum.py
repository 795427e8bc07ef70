"""The checksum of matrix products: what it costs a step, and the smallest error it sees, beside the published rules.

    python benchmarks/checksum.py                        all parts
    python benchmarks/checksum.py --parts sensitivity    only this one
    python benchmarks/checksum.py --quick --json out.json

Cost: equal trainings of the larger Llama in one process, with the default checks and with checksums as well, in turns.
On a CPU mindformers makes its norms of several operators, which nothing computes again. Norms: the same with a
`nn.LayerNorm` in each of their places, which is one operator, as on an accelerator, and is checked.
Sensitivity: the smallest error of one element of a right product that a rule finds, as a multiple of the root mean
square of the product; the largest of several seeded places. Nothing else heavy may run at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")
os.environ.setdefault("LOCAL_DEFAULT_PATH", tempfile.mkdtemp())

import numpy as np
from _turns import Step, in_turns
from asd.operators.kernel.product import TOLERANCES, check_product
from mindspore import Tensor, nn

from asd import Config
from asd.operators import Checksum, StepMonitor
from asd.operators.drill.workload import LARGE, SMALL, batches, build, use_mode

PARTS = ("cost", "norms", "sensitivity")
ERRORS = [2.0 ** (exponent / 2) for exponent in range(-48, 15)]
"""Multiples of the root mean square that are tried, smallest first."""


def with_layer_norms(net: nn.Cell) -> nn.Cell:
    """`net` with a `nn.LayerNorm` in the place of each norm that mindformers made of several operators."""
    for _, cell in net.cells_and_names():
        for name, child in list(cell.name_cells().items()):
            if type(child).__name__ == "LlamaRMSNorm":
                setattr(cell, name, nn.LayerNorm(child.weight.shape))
    for name, parameter in net.parameters_and_names():
        parameter.name = name
    return net


def cost(mode: str, every: int, turns: int, *, layer_norm: bool = False, small: bool) -> dict[str, Any]:
    """Step time with the default checks and checksums over step time with the default checks, in turns."""
    use_mode(mode)
    workload = SMALL if small else LARGE
    monitors: list[StepMonitor] = []
    checksums: list[Checksum] = []

    def build_one(checksum: Checksum | None) -> Step:
        net, optimizer = build(workload)
        if layer_norm:
            net = with_layer_norms(net)
            optimizer = nn.AdamWeightDecay(net.trainable_params(), learning_rate=workload.learning_rate)
        monitor = StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=checksum or False)
        monitors.append(monitor)
        cell = nn.TrainOneStepCell(net, optimizer)
        monitor.attach(cell, optimizer)

        def step(batch: Tensor) -> float:
            for other in checksums:
                other.stop()  # what is sampled is common to all of a process
            if checksum is not None:
                checksum.begin_step(monitor.monitor.step + 1)
            loss = cell(batch)
            monitor.step(loss)
            return float(loss.asnumpy())

        return step

    def with_checksum() -> Step:
        checksums.append(Checksum(every=every, first_steps=0))
        return build_one(checksums[-1])

    found = in_turns(lambda: build_one(None), with_checksum, batches(workload), turns)
    names = [name for name in monitors[1].monitor.history if ".checksum" in name]
    for monitor in monitors:
        monitor.close()
    return {"mode": mode, "every": every, "checkpoints_seen": len(names), **found.summary()}


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    """Float32 to the nearest number of the type; bfloat16 as the float32 array that holds it."""
    if dtype != "bfloat16":
        return x.astype(dtype)
    bits = x.view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def sensitivity(size: int, dtype: str, trials: int) -> dict[str, Any]:
    """Per rule the smallest error of one element that every trial finds, and the worst score of the clean product."""
    rng = np.random.default_rng([7, size])
    a, b = (rounded(rng.standard_normal((size, size)).astype(np.float32), dtype) for _ in range(2))
    clean = rounded(a.astype(np.float32) @ b.astype(np.float32), dtype)
    rms = float(np.sqrt(np.mean(clean.astype(np.float64) ** 2)))
    places = [(int(row), int(column)) for row, column in rng.integers(size, size=(trials, 2))]
    rules = {}
    for rule in TOLERANCES:
        found = [_smallest(a, b, clean, place, rms, dtype, rule) for place in places]
        rules[rule] = {
            "smallest_error_in_rms": None if None in found else max(found),
            "clean_score": check_product(a, b, clean, dtype=dtype, tolerance=rule).score,
        }
    return {"size": size, "dtype": dtype, "trials": trials, "rules": rules}


def _smallest(
    a: np.ndarray, b: np.ndarray, clean: np.ndarray, place: tuple[int, int], rms: float, dtype: str, rule: str
) -> float | None:
    """Of `ERRORS`, by bisection: a larger error is seen where a smaller one is."""
    low, high = 0, len(ERRORS)
    while low < high:
        middle = (low + high) // 2
        product = clean.copy()
        product[place] = rounded(np.float32([product[place] + ERRORS[middle] * rms]), dtype)[0]
        if check_product(a, b, product, dtype=dtype, tolerance=rule).wrong:
            high = middle
        else:
            low = middle + 1
    return ERRORS[low] if low < len(ERRORS) else None


def main() -> None:
    """Runs the chosen parts and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="a small model and few repetitions, to see that it runs")
    parser.add_argument("--json", type=Path, help="where to write the figures; parts not run stay there")
    args = parser.parse_args()
    result: dict[str, Any] = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    if "sensitivity" in args.parts:
        sizes, trials = ((64, 256), 2) if args.quick else ((64, 256, 1024, 2048), 8)
        result["sensitivity"] = []
        for size in sizes:
            for dtype in ("float32", "float16", "bfloat16"):
                result["sensitivity"].append(sensitivity(size, dtype, trials))
                print(json.dumps(result["sensitivity"][-1]), flush=True)
    # Each of them in one step of 16, and all of them in each step, as in the first 32 of a process.
    rows = [("graph", 16, 96), ("pynative", 16, 96), ("graph", 1, 8), ("pynative", 1, 8)]
    if args.quick:
        rows = [("graph", 16, 4)]
    for part, layer_norm in (("cost", False), ("norms", True)):
        if part in args.parts:
            result[part] = [cost(*row, layer_norm=layer_norm, small=args.quick) for row in rows]
            print(json.dumps(result[part], indent=1), flush=True)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

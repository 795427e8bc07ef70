"""Convolutions, lookups and softmaxes that are computed again: false alarms, the smallest error seen, and the cost.

    python benchmarks/results_again.py                   all of them, a minute
    python benchmarks/results_again.py --quick --json out.json

Healthy results are what MindSpore computes on this machine, of float32 and float16; of bfloat16, which it has no
kernels for, its float32 results of rounded operands, rounded. Each element that a check compared, or that is under a
sum that it compared, counts as one. The smallest error is that of one element, as a multiple of the root mean square of
its tensor, that is found in every trial. The cost is the processor time of the check over that of the operator, when it
is due; a check that is not due is a call.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GLOG_v", "3")
os.environ.setdefault("LOCAL_DEFAULT_PATH", tempfile.mkdtemp())

import mindspore as ms
import numpy as np
from asd.operators.kernel.convolution import check_convolution
from asd.operators.kernel.lookup import check_lookup
from asd.operators.kernel.softmax import check_softmax
from checksum import ERRORS, rounded
from mindspore import Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812

DTYPES = ("float32", "float16", "bfloat16")
CONVOLUTIONS = (
    # batch, channels, side, outputs, kernel, stride, groups
    (8, 3, 32, 64, 7, 2, 1), (8, 64, 16, 64, 3, 1, 1), (8, 64, 16, 128, 3, 2, 1), (4, 128, 14, 256, 1, 1, 1),
    (8, 64, 16, 64, 3, 1, 64), (4, 64, 14, 96, 5, 1, 4),
)  # fmt: skip
LOOKUPS = ((1000, 2048, 64), (32000, 1024, 256), (7, 4096, 32))
"""Rows, tokens, width."""
SOFTMAXES = ((512, 64, 1.0), (256, 1000, 4.0), (2048, 16, 20.0), (64, 4096, 1.0))
"""Rows, width, deviation of the input."""


class Case(NamedTuple):
    """One operator with its operands and results.

    Attributes:
        results: By the name of the part.
        judge: The scores, by the same names, of such results.
        seconds: Of the operator, forward and backward.
    """

    results: dict[str, np.ndarray]
    judge: Callable[[dict[str, np.ndarray]], Any]
    seconds: float


class Called(nn.Cell):
    """An operator as a cell."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def construct(self, *operands):
        return self.op(*operands)


class Rows(nn.Cell):
    """A lookup along the first axis."""

    def __init__(self) -> None:
        super().__init__()
        self.op = P.Gather()

    def construct(self, table, ids):
        return self.op(table, ids, 0)


def computed(net: nn.Cell, dtype: str, shape_of_dy: Any, *operands: np.ndarray) -> tuple[list[np.ndarray], float]:
    """y, dy and the gradients, of the type; and the processor time that took."""
    kind = ms.float16 if dtype == "float16" else ms.float32
    given = [Tensor(each) if each.dtype.kind == "i" else Tensor(each).astype(kind) for each in operands]
    dy = rounded(shape_of_dy, dtype)
    gradient = ops.GradOperation(get_all=True, sens_param=True)(net)
    for turn in range(2):  # the first one compiles
        began = time.process_time()
        y = net(*given)
        found = [each.asnumpy() for each in (y, *gradient(*given, Tensor(dy).astype(kind)))]
        seconds = time.process_time() - began
        del turn
    return [rounded(found[0], dtype), dy, *(rounded(each, dtype) for each in found[1:])], seconds


def convolutions(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """With padding that keeps the size."""
    for batch, channels, side, outputs, width, stride, groups in CONVOLUTIONS:
        op = P.Conv2D(outputs, width, pad_mode="pad", pad=width // 2, stride=stride, group=groups)
        x = rounded(rng.standard_normal((batch, channels, side, side)).astype(np.float32), dtype)
        w = rounded((rng.standard_normal((outputs, channels // groups, width, width)) * 0.1).astype(np.float32), dtype)
        out = (side - 1) // stride + 1
        dy = rng.standard_normal((batch, outputs, out, out)).astype(np.float32)
        (y, dy, dx, dw), seconds = computed(Called(op), dtype, dy, x, w)
        how = {"stride": (stride, stride), "padding": (width // 2, width // 2), "dtype": dtype}

        def judge(parts: dict[str, np.ndarray], x=x, w=w, dy=dy, how=how) -> Any:
            gradients = {"dy": dy} if "dx" in parts or "dw" in parts else {}
            return check_convolution(x, w, **gradients, **parts, **how)

        yield Case({"y": y, "dx": dx, "dw": dw}, judge, seconds)


def lookups(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Ids as words are: a few of them often, most seldom. Of bfloat16 NumPy has the numbers in a wider type."""
    for rows, tokens, width in LOOKUPS:
        ids = np.minimum(rng.zipf(1.3, tokens) - 1, rows - 1).astype(np.int32)
        table = rounded(rng.standard_normal((rows, width)).astype(np.float32), dtype)
        (y, dy, dtable, _), seconds = computed(
            Rows(), dtype, rng.standard_normal((tokens, width)).astype(np.float32), table, ids
        )

        def judge(parts: dict[str, np.ndarray], ids=ids, table=table, dy=dy) -> Any:
            return check_lookup(ids, table, parts.get("y"), dy=dy, dtable=parts.get("dtable"), dtype=dtype)

        yield Case({"y": y, "dtable": dtable}, judge, seconds)


def softmaxes(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """A third of each row is masked."""
    for rows, width, size in SOFTMAXES:
        x = (rng.standard_normal((rows, width)) * size).astype(np.float32)
        x = rounded(np.where(rng.random(x.shape) < 1 / 3, np.float32(-10000), x), dtype)
        dy = rng.standard_normal(x.shape).astype(np.float32)
        (y, dy, dx), seconds = computed(Called(P.Softmax()), dtype, dy, x)

        def judge(parts: dict[str, np.ndarray], x=x, y=y, dy=dy) -> Any:
            return check_softmax(
                x if "y" in parts else None, y=parts.get("y", y), dy=dy, dx=parts.get("dx"), dtype=dtype
            )

        yield Case({"y": y, "dx": dx}, judge, seconds)


def smallest(case: Case, name: str, dtype: str, places: np.ndarray) -> float | None:
    """Of `ERRORS`, by bisection; the largest over all places."""
    result, found = case.results[name], []
    rms = float(np.sqrt(np.mean(result.astype(np.float64) ** 2)))
    for place in places:
        low, high = 0, len(ERRORS)
        while low < high:
            middle = (low + high) // 2
            wrong = result.copy()
            wrong.flat[place] = rounded(np.float32([wrong.flat[place] + ERRORS[middle] * rms]), dtype)[0]
            if getattr(case.judge({name: wrong}), name) > 1:
                high = middle
            else:
                low = middle + 1
        found.append(ERRORS[low] if low < len(ERRORS) else float("inf"))
    return max(found)


def measure(kind: str, dtype: str, elements: int, trials: int) -> dict[str, Any]:
    """Healthy results of one kind until so many elements were checked, and the smallest errors of the first ones."""
    cases = {"convolution": convolutions, "lookup": lookups, "softmax": softmaxes}[kind]
    rng = np.random.default_rng([11, DTYPES.index(dtype)])
    checked = alarms = results = 0
    worst, errors, costs = 0.0, {}, []
    while checked < elements:
        for case in cases(rng, dtype):
            began = time.process_time()
            scores = case.judge(case.results)
            costs.append((time.process_time() - began) / max(case.seconds, 1e-9))
            for name, result in case.results.items():
                score = getattr(scores, name)
                checked, results = checked + result.size, results + 1
                alarms, worst = alarms + int(score > 1), max(worst, score)
                if results <= len(case.results) * 6 and trials:
                    places = np.random.default_rng(results).integers(result.size, size=trials)
                    errors[name] = max(errors.get(name, 0.0), smallest(case, name, dtype, places))
    return {
        "kind": kind, "dtype": dtype, "elements": checked, "results": results, "false_alarms": alarms,
        "largest_clean_score": worst, "smallest_error_in_rms": errors,
        "check_over_operator": float(np.median(costs)),
    }  # fmt: skip


def main() -> None:
    """Runs all and prints it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few results, to see that it runs")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    rows = []
    for kind in ("convolution", "lookup", "softmax"):
        for dtype in DTYPES:
            rows.append(measure(kind, dtype, *((1, 0) if args.quick else (1_000_000, 2))))
            print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

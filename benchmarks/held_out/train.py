"""One process: trainings of one network through `Model.train`, each with one fault; a program as a user writes one.

python -m benchmarks.held_out.train mixer graph float32 OUT FAULTS SEED CHOSEN
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")
os.environ.setdefault("LOCAL_DEFAULT_PATH", tempfile.mkdtemp())

# A training this small takes eight times as long where its threads wait for a core that somebody else uses.
os.sched_setaffinity(0, {int(os.environ.get("HELD_OUT_CORE", "0"))})

import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import nn  # noqa: E402
from mindspore.train import Callback  # noqa: E402

from benchmarks.held_out.nets import break_product, training  # noqa: E402

STEPS, START = 70, 44
KINDS = ("exponent", "zero run", "zero tile", "larger", "smaller", "offset", "low bits")
PLACES = ("product", "activation", "weight", "dw", "gradient", "moment", "dx")
IN_MEMORY = ("weight", "moment")


def corrupt(array: np.ndarray, kind: str, seed: int) -> np.ndarray:
    """A corrupted copy; where and how much is drawn from the seed, and is the same each time.

    One exponent bit flips; a quarter of all elements, or a block of half of the rows and half of the columns, becomes
    zero; all are 2 to 16 times larger or smaller; 2 to 8 times the mean magnitude is added to all; in half of all the
    lower bits flip, up to a hundredth of the value.
    """
    random = np.random.default_rng(seed)
    faulty = np.array(array, order="C")
    flat = faulty.reshape(-1)
    bits = flat.view({2: np.uint16, 4: np.uint32}[flat.itemsize])
    at, low = int(random.integers(flat.size)), 10 if flat.itemsize == 2 else 23
    if kind == "exponent":
        bits[at] ^= bits.dtype.type(1 << int(random.integers(low, 8 * flat.itemsize - 1)))
    elif kind == "zero run":
        flat[at : at + max(4, flat.size // 4)] = 0
    elif kind == "zero tile":
        tile = faulty.reshape(-1, faulty.shape[-1])
        for axis in range(2):
            half = max(1, tile.shape[axis] // 2)
            begins = int(random.integers(tile.shape[axis] - half + 1))
            tile = tile[begins : begins + half] if axis == 0 else tile[:, begins : begins + half]
        tile[...] = 0
    elif kind == "low bits":
        bits[random.random(flat.size) < 0.5] ^= bits.dtype.type((1 << low - 7) - 1)
    elif kind == "offset":
        flat += flat.dtype.type(random.uniform(2, 8) * np.abs(flat).mean(dtype=np.float64))
    else:
        factor = 2 ** random.uniform(1, 4)
        flat *= flat.dtype.type(factor if kind == "larger" else 1 / factor)
    return faulty


class Striker(Callback):
    """Knows the step, strikes what is due, keeps the losses."""

    def __init__(self, fault: dict[str, Any] | None, dense: nn.Dense) -> None:
        super().__init__()
        self.fault, self.step, self.losses = fault, 0, list[float]()
        self.dense, self.done = dense, False
        self.memory: Any = None

    def strike(self, place: str, array: np.ndarray) -> np.ndarray:
        """Called where something has been computed; what strikes once does not strike a step that is made again."""
        fault = self.fault
        if fault is None or fault["place"] != place or self.step < START or (self.done and not fault["lasting"]):
            return array
        self.done = True
        return corrupt(array, fault["kind"], fault["seed"])

    def on_train_begin(self, run_context: Any) -> None:  # noqa: ARG002
        """Finds the operator, before it is compiled and when its checks are there."""
        if self.fault and self.fault["place"] in {"product", "dx", "dw"}:
            break_product(self.dense, self.strike)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Strikes weights and moments in memory."""
        self.step = run_context.original_args().cur_step_num
        if self.memory is not None:
            held = self.memory.asnumpy()
            held[...] = self.strike(self.fault["place"], held)

    def on_train_step_end(self, run_context: Any) -> None:
        """Keeps the loss."""
        out = run_context.original_args().net_outputs
        self.losses.append(float((out[0] if isinstance(out, tuple) else out).asnumpy()))


def one(name: str, precision: str, fault: dict[str, Any] | None, seed: int) -> dict[str, Any]:
    """One training; its losses, weights, and what ended it."""
    strikers: list[Striker] = []
    net, made, data = training(name, precision, STEPS, seed, lambda place, array: strikers[0].strike(place, array))
    layers = [each for _, each in net.cells_and_names() if isinstance(each, nn.Dense)]
    striker = Striker(fault, layers[(fault["seed"] if fault else 0) % len(layers)])
    strikers.append(striker)
    known = {id(weight) for weight in made.parameters}
    moments = [each for each in made.get_parameters() if each.size >= 8 and id(each) not in known]
    if fault and fault["place"] in IN_MEMORY:
        chosen = [*made.parameters] if fault["place"] == "weight" else moments
        chosen = [each for each in chosen if each.ndim > 1 and each.asnumpy().size >= 8]
        striker.memory = chosen[fault["seed"] % len(chosen)]
    ended, began = "", time.time()
    try:
        ms.Model(net, optimizer=made).train(1, data, callbacks=[striker], dataset_sink_mode=False)
    except Exception as error:  # the default ends the training
        ended = f"{type(error).__name__}: {str(error)[:300]}"
    return {
        "fault": fault,
        "losses": striker.losses,
        "ended": ended,
        "step": striker.step,
        "seconds": time.time() - began,
    }


def drawn(number: int, seed: int) -> list[dict[str, Any]]:
    """The faults of a network."""
    random = np.random.default_rng(seed)
    faults: list[dict[str, Any]] = []
    for i in range(number):
        place = PLACES[i % len(PLACES)]
        kind = KINDS[int(random.integers(len(KINDS)))]
        lasting = bool(random.integers(2)) and place not in IN_MEMORY
        faults.append({"place": place, "kind": kind, "lasting": lasting, "seed": int(random.integers(2**31))})
    return faults


def main() -> None:
    """Writes a line for each training; `CHOSEN` are the numbers of the faults, or `all`."""
    name, mode, precision, out, number, seed, chosen = sys.argv[1:]
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    checked = os.environ.get("NPU_ASD_ENABLE") == "1"
    faults = drawn(int(number), int(seed))
    numbers = range(len(faults)) if chosen == "all" else [int(each) for each in chosen.split(",") if each]
    trainings = [(-1, None, 3), *((i, faults[i], 3) for i in numbers), *([] if checked else [(-2, None, 4)])]
    for i, fault, drawn_from in trainings:
        folder = f"{out}.run/{i}"
        if checked:
            os.environ["ASD_RUN_DIR"] = folder
        row = one(name, precision, fault, drawn_from) | {"number": i, "run": folder}
        with Path(out).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

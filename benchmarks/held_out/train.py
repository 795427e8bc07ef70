"""One process: trainings of one network through `Model.train`, each with one fault; a program as a user writes one.

python -m benchmarks.held_out.train mixer graph float32 OUT FAULTS SEED
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

import mindspore as ms
import numpy as np
from mindspore.train import Callback

from benchmarks.held_out.nets import training

STEPS, START = 70, 44
KINDS = ("exponent", "zero run", "zero tile", "times 4", "by 4", "offset", "low bits")
PLACES = ("activation", "gradient", "weight", "moment")


def corrupt(array: np.ndarray, kind: str, seed: int) -> np.ndarray:
    """A corrupted copy; the same elements are hit each time."""
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
        rows = faulty.reshape(-1, faulty.shape[-1])
        rows[: max(1, len(rows) // 2), : max(1, rows.shape[1] // 2)] = 0
    elif kind == "low bits":
        bits ^= bits.dtype.type((1 << low - 7) - 1)
    elif kind == "offset":
        flat += flat.dtype.type(4 * np.abs(flat).mean(dtype=np.float64))
    else:
        flat *= flat.dtype.type(4 if kind == "times 4" else 0.25)
    return faulty


class Striker(Callback):
    """Knows the step, strikes what is due, keeps the losses."""

    def __init__(self, fault: dict[str, Any] | None) -> None:
        super().__init__()
        self.fault, self.step, self.losses = fault, 0, list[float]()
        self.tensor: Any = None

    def due(self, place: str) -> bool:
        """Whether the fault strikes there in this step."""
        fault = self.fault
        if fault is None or fault["place"] != place:
            return False
        return self.step == START or (fault["lasting"] and self.step > START)

    def strike(self, place: str, array: np.ndarray) -> np.ndarray:
        """Called where an activation or a gradient has been computed."""
        return corrupt(array, self.fault["kind"], self.fault["seed"]) if self.fault and self.due(place) else array

    def on_train_step_begin(self, run_context: Any) -> None:
        """Strikes weights and moments in memory."""
        self.step = run_context.original_args().cur_step_num
        if self.fault and (self.due("weight") or self.due("moment")):
            memory = self.tensor.asnumpy()
            memory[...] = corrupt(memory, self.fault["kind"], self.fault["seed"])

    def on_train_step_end(self, run_context: Any) -> None:
        """Keeps the loss."""
        out = run_context.original_args().net_outputs
        self.losses.append(float((out[0] if isinstance(out, tuple) else out).asnumpy()))


def one(name: str, precision: str, fault: dict[str, Any] | None, seed: int) -> dict[str, Any]:
    """One training; its losses, weights, and what ended it."""
    striker = Striker(fault)
    net, made, data = training(name, precision, STEPS, seed, striker.strike)
    known = {id(weight) for weight in made.parameters}
    moments = [each for each in made.get_parameters() if each.size >= 8 and id(each) not in known]
    if fault and fault["place"] in {"weight", "moment"}:
        chosen = [*made.parameters] if fault["place"] == "weight" else moments
        chosen = [each for each in chosen if each.ndim > 1 and each.asnumpy().size >= 8]
        striker.tensor = chosen[fault["seed"] % len(chosen)]
    ended, began = "", time.time()
    try:
        ms.Model(net, optimizer=made).train(1, data, callbacks=[striker], dataset_sink_mode=False)
    except Exception as error:  # the default ends the training
        ended = f"{type(error).__name__}: {str(error)[:300]}"
    weights = np.concatenate([each.asnumpy().reshape(-1).astype(np.float64) for each in made.parameters])
    return {
        "fault": fault, "losses": striker.losses, "weights": weights.tolist(), "ended": ended, "step": striker.step,
        "seconds": time.time() - began,
    }  # fmt: skip


def main() -> None:
    """Writes a line for each training."""
    name, mode, precision, out, number, seed = sys.argv[1:]
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    checked = os.environ.get("NPU_ASD_ENABLE") == "1"
    random = np.random.default_rng(int(seed))
    faults: list[dict[str, Any] | None] = [None]
    for i in range(int(number)):
        place = PLACES[i % len(PLACES)]
        kind = KINDS[int(random.integers(len(KINDS)))]
        lasting = place in {"activation", "gradient"} and bool(random.integers(2))
        faults.append({"place": place, "kind": kind, "lasting": lasting, "seed": int(random.integers(2**31))})
    for i, fault in enumerate(faults):
        folder = f"{out}.run/{i}"
        if checked:
            os.environ["ASD_RUN_DIR"] = folder
        row = one(name, precision, fault, 3)
        row["run"] = folder
        with Path(out).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    if not checked:
        with Path(out).open("a", encoding="utf-8") as file:
            file.write(json.dumps(one(name, precision, None, 4) | {"other_seed": True}) + "\n")


if __name__ == "__main__":
    main()

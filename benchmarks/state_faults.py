"""How many faults in weights and moments are found before the update that would use them.

    python benchmarks/state_faults.py                        all cells; writes benchmarks/results/state_faults.json
    python benchmarks/state_faults.py --cells graph-Adam --json out.json

Each training runs through `Model.train` with a `StepMonitor`, with `ASD_PROTECTION=full ASD_ON_ANOMALY=skip` and
nothing else, on a small decoder of mindformers in float32 or on dense layers in float16. Every third step one tensor,
drawn without replacement from all weights and moments, is struck in memory, by nothing that MindSpore knows of: a
flipped bit, times 4, divided by 4, or all zeros; before the step, or where its backward pass begins. A fault counts as
found when a first-level anomaly of its own step names the tensor, and as refused when the update of that step was.
After the step the program puts the tensor back. Every other step is a healthy one, in which no first-level anomaly may
be. The same training without faults is run with and without detection too, and must end with the same bits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")
os.environ.setdefault("LOCAL_DEFAULT_PATH", tempfile.mkdtemp())

import mindspore as ms
import numpy as np
from detection.wilson import wilson
from mindspore import nn, ops
from mindspore.train import Callback

from asd import Config
from asd.event import Event
from asd.operators import StepMonitor
from asd.operators.drill.workload import SMALL, build, dataset, digest, use_mode
from asd.operators.inject import gradient_fault

RESULTS = Path(__file__).resolve().parent / "results" / "state_faults.json"
CELLS = [
    f"{mode}-{optimizer}-{precision}"
    for mode in ("graph", "pynative")
    for optimizer in ("Adam", "AdamWeightDecay", "Momentum")
    for precision in ("float32", "float16")
]
KINDS = ("flip", "times4", "by4", "zeros")
FIRST, EVERY = 6, 3


class _Dense(nn.Cell):
    """A classifier whose weights are float16, as what it computes; it returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.SequentialCell([nn.Dense(64, 64, dtype=ms.float16) for _ in range(8)])
        self.norm = nn.LayerNorm((64,))

    def construct(self, x):
        return ops.mean((self.norm(self.layers(x.astype(ms.float16)).astype(ms.float32)) - x) ** 2)


class _Struck(nn.Cell):
    """A network whose backward pass begins with a fault."""

    def __init__(self, net: nn.Cell, strike: Any) -> None:
        super().__init__(auto_prefix=False)
        self.net = net
        self.fault = gradient_fault(strike)

    def construct(self, x):
        return self.fault(self.net(x))


class Striker(Callback):
    """Strikes the tensors, puts them back, and knows which step had which."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = np.random.default_rng(seed)
        self._left: list[Any] = []
        self._due: tuple[np.ndarray, str] | None = None
        self._before: tuple[np.ndarray, np.ndarray] | None = None
        self.struck: dict[int, tuple[str, str, str]] = {}

    def serve(self, tensors: list[Any]) -> None:
        """These are struck, each once."""
        self._left = [tensors[i] for i in self._random.permutation(len(tensors))]

    @property
    def steps(self) -> int:
        """How many steps that takes."""
        return FIRST + EVERY * len(self._left)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Before the step."""
        step = run_context.original_args().cur_step_num
        if step < FIRST or step % EVERY or not self._left:
            return
        tensor = self._left.pop()
        kind = KINDS[int(self._random.integers(len(KINDS)))]
        when = ("before", "backward")[int(self._random.integers(2))]
        memory = tensor.asnumpy().reshape(-1)
        if kind != "flip" and not memory.any():
            kind = "flip"  # nothing else changes what is all zero
        self.struck[step] = (tensor.name, kind, when)
        self._before = memory, memory.copy()
        self._due = memory, kind
        if when == "before":
            self.strike(memory)

    def strike(self, gradient: np.ndarray) -> np.ndarray:
        """Does what is due; called where the backward pass begins too."""
        due, self._due = self._due, None
        if due is not None:
            memory, kind = due
            bits = memory.view({2: np.uint16, 4: np.uint32}[memory.itemsize])
            if kind == "flip":
                bit = int(self._random.integers(8 * memory.itemsize))
                bits[int(self._random.integers(memory.size))] ^= bits.dtype.type(1 << bit)
            else:
                memory *= memory.dtype.type({"times4": 4, "by4": 0.25, "zeros": 0}[kind])
        return gradient

    def on_train_step_end(self, run_context: Any) -> None:
        """Puts back what was struck."""
        del run_context
        if self._before is not None:
            memory, before = self._before
            memory[:] = before
            self._before = None


def training(optimizer: str, precision: str) -> tuple[nn.Cell, nn.Cell, Any]:
    """A network that returns its loss, its optimizer, and what makes a dataset of so many steps."""
    if precision == "float32":
        net, _ = build(SMALL)
        data = lambda steps: dataset(SMALL, steps)  # noqa: E731
    else:
        ms.set_seed(3)
        np.random.seed(3)  # noqa: NPY002 - MindSpore draws weights from it
        net = _Dense().set_train()
        rows = np.random.default_rng(5).standard_normal((64, 16, 64)).astype(np.float32)
        data = lambda steps: ms.dataset.GeneratorDataset([rows[i % 64] for i in range(steps)], ["x"], shuffle=False)  # noqa: E731
    weights = net.trainable_params()
    if optimizer == "Momentum":
        made = nn.Momentum(weights, 1e-3, 0.9)
    else:  # squares of float16 gradients become 0, and with a small `eps` a weight grows to the 80-fold in one step
        made = getattr(nn, optimizer)(weights, 1e-3, **({"eps": 1e-3} if precision == "float16" else {}))
    return net, made, data


def config(folder: str) -> Config:
    """What one export gives, and updates refused without an end."""
    return Config.from_env(
        {"NPU_ASD_ENABLE": "1", "ASD_PROTECTION": "full", "ASD_ON_ANOMALY": "skip", "ASD_RUN_DIR": folder}
    )


def healthy(optimizer: str, precision: str, folder: str, steps: int) -> dict[str, Any]:
    """Whether weights and state end with the same bits with and without detection, and the alarms."""
    digests, events = [], list[Event]()
    for checked in (False, True):
        net, made, data = training(optimizer, precision)
        callbacks = [StepMonitor(config(folder), sinks=[events.append])] if checked else []
        ms.Model(net, optimizer=made).train(1, data(steps), callbacks=callbacks, dataset_sink_mode=False)
        digests.append(digest(net, made))
    return {"steps": steps, "equal": digests[0] == digests[1], "alarms": len(_alarms(events))}


def faulty(optimizer: str, precision: str, folder: str, seed: int) -> dict[str, Any]:
    """One training in which every tensor is struck once."""
    striker, events = Striker(seed), list[Event]()
    net, made, data = training(optimizer, precision)
    known = {id(weight) for weight in made.parameters}
    kept = [each for each in made.get_parameters() if each.size >= 8 and id(each) not in known]
    striker.serve([*made.parameters, *kept])
    monitor = StepMonitor(config(folder), sinks=[events.append])
    model = ms.Model(_Struck(net, striker.strike), optimizer=made)
    model.train(1, data(striker.steps), callbacks=[monitor, striker], dataset_sink_mode=False)
    alarms = {(event.step, event.checkpoint): event for event in _alarms(events)}
    rows = []
    for step, (name, kind, when) in striker.struck.items():
        event = alarms.pop((step, name), None)
        rows.append({"kind": kind, "when": when, "found": event is not None, "refused": bool(event and event.refused)})
        for also in [key for key in alarms if key[0] == step]:
            alarms.pop(also)  # what the fault did to the gradients
    return {"faults": rows, "alarms_elsewhere": [[step, name, each.reason] for (step, name), each in alarms.items()]}


def _alarms(events: list[Event]) -> list[Event]:
    return [event for event in events if event.kind == "anomaly" and event.level.name == "ERROR"]


def main() -> None:
    """Runs the cells."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", nargs="+", default=CELLS, help="mode-optimizer-precision, or what it begins with")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    known = json.loads(arguments.json.read_text()) if arguments.json.exists() else {"cells": {}}
    for cell in [each for each in CELLS if each.startswith(tuple(arguments.cells))]:
        mode, optimizer, precision = cell.split("-")
        use_mode(mode)
        with tempfile.TemporaryDirectory() as folder:
            found = faulty(optimizer, precision, folder, arguments.seed)
            found["healthy"] = healthy(optimizer, precision, folder, 60)
        rows = found["faults"]
        for what in ("found", "refused"):
            count = sum(row[what] for row in rows)
            found[f"{what}_of"] = [count, len(rows), *wilson(count, len(rows))]
        known["cells"][cell] = found
        print(cell, found["found_of"], found["refused_of"], found["alarms_elsewhere"], found["healthy"], flush=True)
        totals = [cell["found_of"] for cell in known["cells"].values()]
        count, of = sum(each[0] for each in totals), sum(each[1] for each in totals)
        known |= {
            "command": "python benchmarks/state_faults.py", "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "mindspore": version("mindspore"), "found": [count, of, *wilson(count, of)],
        }  # fmt: skip
        arguments.json.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""One process of the benchmark: `python -m benchmarks.held_out.train SPEC`, a JSON object; writes lines of JSON.

Without detection it trains once with a right device, and once more from where the faults begin for each of them. With
detection it is what a user runs: `NPU_ASD_ENABLE=1`, `Model.train` and a `StepMonitor`, which ends it at an alarm.
"""

import ctypes
import json
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.held_out.device import Device
from benchmarks.held_out.faults import FOR_EVER, LONG, MANY, MEMORY, Fault, drawn

DEVICE = Device()  # before MindSpore

import mindspore as ms  # noqa: E402
from mindspore import nn  # noqa: E402
from mindspore.communication import get_rank, init  # noqa: E402
from mindspore.train import Callback  # noqa: E402

from benchmarks.held_out.networks import BATCH, NETWORKS  # noqa: E402

SCHEDULE = 300
SHORT = 40
AUDITED = 600
"""Steps of a schedule; steps that are looked at after a fault that is there once, and after one at a place of a network
that several ranks hold."""
BRIEF = ("single", "memory", "control", "gate")
"""Kinds that strike once."""
GREW = 1e4
"""Times that the largest number of the state grows where a gradient of 1e30 was applied, at least."""


class Training:
    """A network with its optimizer and data, as a number and the training's name draw them."""

    def __init__(self, name: str, number: int, steps: int, ranks: int = 1) -> None:
        network, mode, precision = name.split("-")
        ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
        ms.set_device("CPU")
        self.rank = 0
        if ranks > 1:
            init()
            ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
            self.rank = get_rank()
        if mode == "pynative":
            ms.runtime.launch_blocking()  # where threads wait for one another, a step takes ten times as long
        random = np.random.default_rng([number, zlib.crc32(name.encode())])
        self.first = int(random.integers(60, 90))  # the step in which faults begin, after a CPU's first audit
        ms.set_seed(int(random.integers(2**31)))
        np.random.seed(int(random.integers(2**31)))  # noqa: NPY002 - MindSpore draws weights from it
        self.net = NETWORKS[network](int(random.choice([24, 32, 40])))
        if precision == "float16":
            self.net.to_float(ms.float16)
        self.weights = self.net.trainable_params()
        self.optimizer = OPTIMIZERS[random.integers(len(OPTIMIZERS))](
            self.weights, lambda most: rates(random, most, steps)
        )
        self.model = ms.Model(self.net, optimizer=self.optimizer)
        self.columns = NETWORKS[network].data(
            np.random.default_rng(int(random.integers(2**31))), BATCH * SCHEDULE * ranks
        )

    def data(self, begin: int, end: int) -> Any:
        """The batches of the steps from `begin`, before `end`; the first is step 1."""
        rows = np.arange((begin - 1) * BATCH, (end - 1) * BATCH) % (SCHEDULE * BATCH) + self.rank * SCHEDULE * BATCH
        chosen = tuple(each[rows] for each in self.columns)
        return ms.dataset.NumpySlicesDataset(chosen, ["x", "y"], shuffle=False).batch(BATCH)

    def state(self) -> list[Any]:
        """All that a step changes."""
        found = {id(each): each for each in [*self.net.get_parameters(), *self.optimizer.get_parameters()]}
        return list(found.values())

    def memory(self, where: str, seed: int) -> Any:
        """A tensor of that kind that a fault in memory strikes; a weight where the training has none of the kind."""
        own = {id(each) for each in self.weights}
        found = {
            "weight": self.weights,
            "moment": [
                each
                for each in self.optimizer.get_parameters()
                if id(each) not in own and each.size >= 2 and each.name != "learning_rate"
            ],
            "statistic": [each for each in self.net.get_parameters() if id(each) not in own],
        }
        some = found[where] or self.weights
        return some[seed % len(some)]


def rates(random: np.random.Generator, most: float, count: int) -> float | list[float]:
    """The learning rate: one number, or one for each step: falling by a cosine, in stairs, or up and down again."""
    steps = np.arange(SCHEDULE)
    rise = np.minimum(1, (steps + 1) / random.integers(5, 30))
    falls = [
        0.55 + 0.45 * np.cos(np.pi * steps / SCHEDULE),
        0.5 ** (steps // random.integers(60, 120)),
        1 - np.abs(steps / SCHEDULE - 0.3),
    ]
    kind = random.integers(4)
    if kind == 0:
        return most
    found = most * rise * falls[kind - 1]
    return [float(each) for each in found] + [float(found[-1])] * max(0, count - SCHEDULE)


OPTIMIZERS: tuple[Callable[..., Any], ...] = (
    lambda weights, of: nn.Adam(weights, of(4e-3)),
    lambda weights, of: nn.AdamWeightDecay(weights, of(4e-3), weight_decay=0.01),
    lambda weights, of: nn.Momentum(weights, of(4e-2), 0.9),
    lambda weights, of: nn.SGD(weights, of(5e-2), momentum=0.8),
    lambda weights, of: nn.RMSProp(weights, of(1e-3)),
)


class Conductor(Callback):
    """Tells the device the step, changes memory, keeps losses."""

    def __init__(
        self, training: Training, begin: int, fault: Fault | None, listed: int = 0, most: int = FOR_EVER, ranks: int = 1
    ) -> None:
        super().__init__()
        self.together = ranks > 1  # no rank ends before the others
        self.most = most  # wrong results, after which the training ends
        self.training, self.step, self.fault, self.listed = training, begin - 1, fault, listed
        self.losses: list[float] = []
        self.calls: list[tuple[str, int, int]] = []
        self.in_memory = ""
        self.greatest = 0.0

    def on_train_step_begin(self, run_context: Any) -> None:  # noqa: ARG002
        self.step += 1
        DEVICE.begin(self.step, listing=self.step == self.listed)
        if self.fault and self.step == self.fault.details["first"]:
            self.greatest = greatest(self.training)
            if self.fault.where in MEMORY and self.fault.rank == self.training.rank:
                self.lose(self.fault)

    def lose(self, fault: Fault) -> None:
        """Changes bits of a number in memory, by its address."""
        tensor = self.training.memory(fault.where, fault.details["seed"])
        at = tensor._data_ptr() + 4 * int(fault.details["place"] * tensor.size)
        held = ctypes.c_uint32.from_address(at)
        held.value ^= fault.details["mask"] << int(fault.details["bit"] * 31)
        self.in_memory = tensor.name

    def on_train_step_end(self, run_context: Any) -> None:
        if self.step == self.listed:
            self.calls = DEVICE.calls()
        self.losses.append(float(run_context.original_args().net_outputs.asnumpy()))
        broken = not np.isfinite(self.losses[-1]) or DEVICE.strikes()[0] >= self.most
        if self.fault and broken and not self.together:
            run_context.request_stop()


def run(training: Training, begin: int, end: int, fault: Fault | None, ranks: int, listed: int = 0) -> Conductor:
    """Trains the steps from `begin`, before `end`."""
    conductor = Conductor(training, begin, fault, listed, ranks=ranks)
    DEVICE.break_down(*(fault.broken(training.rank) if fault else ()))
    training.model.train(1, training.data(begin, end), callbacks=[conductor], dataset_sink_mode=False)
    return conductor


def greatest(training: Training) -> float:
    """The largest number of all that a step changes; infinite where one is no finite number."""
    most = max(float(np.abs(each.asnumpy().astype(np.float64)).max(initial=0)) for each in training.state())
    return most if np.isfinite(most) else float("inf")


def reached(training: Training) -> list[np.ndarray]:
    """All weights, one after the other, and all statistics that are no weights."""
    own = {id(each) for each in training.weights}
    others = [each for each in training.net.get_parameters() if id(each) not in own]
    return [
        np.concatenate([each.asnumpy().ravel().astype(np.float64) for each in some])
        for some in (training.weights, others)
        if some
    ]


def apart(now: list[np.ndarray], twin: list[np.ndarray], begun: list[np.ndarray]) -> float:
    """How far weights or statistics are from the twin's, as a share of the way that the twin's went."""
    ways = zip(now, twin, begun, strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b - c)) for a, b, c in ways)


def struck(conductor: Conductor) -> dict[str, Any]:
    """How often the device was wrong, and where first."""
    number, first = DEVICE.strikes()
    if conductor.in_memory:
        return {"strikes": 1, "strike": {"step": conductor.fault.details["first"], "tensor": conductor.in_memory}}
    return {"strikes": number, "strike": first and first._asdict()}


def plain(spec: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    """Without detection: the right device, then each fault from where it begins; a rank writes what struck it."""
    long, kinds, done, ranks = spec["horizon"], spec["kinds"], spec["done"], spec["ranks"]
    training = Training(spec["training"], spec["number"], 0, ranks)
    first, begun = training.first, reached(training)
    ends = {kind: first + (SHORT if kind in BRIEF else long) for kind in kinds}
    before = run(training, 1, first, None, ranks)
    held = [np.array(each.asnumpy(), order="C") for each in training.state()]
    losses, twins, calls = {}, {}, []
    for end in sorted(set(ends.values())):
        put_back(training, held)
        healthy = run(training, first, end, None, ranks, listed=first)
        calls, losses[end], twins[end] = healthy.calls, healthy.losses, reached(training)
    if "healthy" not in done and training.rank == 0:
        whole = before.losses + losses[max(ends.values())]
        write({"fault": "healthy", "first": first, "losses": whole, "calls": len(calls)})
    for kind, count in kinds.items():
        for fault in drawn(kind, count, first, calls, spec["number"], spec["training"], ranks):
            if f"{kind} {fault.number}" in done:
                continue
            put_back(training, held)
            end = ends[kind]
            conductor = run(training, first, end, fault._replace(second=None), ranks)
            if training.rank != max(fault.rank, 0):
                continue
            moved = apart(reached(training), twins[end], begun)
            last = np.mean(conductor.losses[-10:]), np.mean(losses[end][-10:])
            finite = bool(np.isfinite([*last, moved]).all())
            row = {"fault": f"{kind} {fault.number}", "drawn": fault._asdict()} | struck(conductor)
            row |= {"loss": float(last[0] / last[1] - 1) if finite else None, "moved": moved if finite else None}
            write(row | {"harmful": not finite or bool(last[0] > 1.01 * last[1] or moved > 0.05)})


def put_back(training: Training, held: list[np.ndarray]) -> None:
    """What a step changes is again as it was, in the same memory: a compiled optimizer keeps to that."""
    for each, values in zip(training.state(), held, strict=True):
        ctypes.memmove(each._data_ptr(), values.ctypes.data, values.nbytes)


def watched(spec: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    """With detection, from the first step on; an alarm ends the process as it ends a user's."""
    from asd.operators import StepMonitor

    fault = Fault(**spec["fault"]) if spec["fault"] else None
    kind = fault.kind if fault else ""
    lengths = {"": max(spec["horizon"], spec["healthy"]), "intermittent": LONG} | dict.fromkeys(BRIEF, SHORT)
    lengths |= {"place": AUDITED} if spec["ranks"] > 1 else {}
    length = lengths.get(kind, spec["horizon"])
    training = Training(spec["training"], spec["number"], length + SCHEDULE, spec["ranks"])
    end = training.first + length
    most = MANY if kind == "intermittent" else FOR_EVER
    conductor = Conductor(training, 1, fault, most=most, ranks=spec["ranks"])
    DEVICE.break_down(*(fault.broken(training.rank) if fault else ()))
    try:
        training.model.train(1, training.data(1, end), callbacks=[conductor, StepMonitor()], dataset_sink_mode=False)
    finally:
        row = {"rank": training.rank, "step": conductor.step, "losses": conductor.losses} | struck(conductor)
        if kind == "gate":
            row["applied"] = greatest(training) > GREW * conductor.greatest > 0
        write(row)


def main() -> None:
    """Does what the specification says."""
    spec = json.loads(sys.argv[1])
    out = Path(spec["out"])
    if spec["noise"]:
        place = f"{spec['training']} {spec['watched']} {spec.get('fault')} {os.environ.get('RANK_ID')}"
        DEVICE.shake(spec["noise"], spec["number"] ^ zlib.crc32(place.encode()))

    def write(row: dict[str, Any]) -> None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    (watched if spec["watched"] else plain)(spec, write)


if __name__ == "__main__":
    main()

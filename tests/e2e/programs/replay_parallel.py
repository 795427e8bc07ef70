"""One of several ranks that train together, once a pair: `replay_parallel.py MODE STORY REPLAY...`; for msrun."""

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_rank, init

sys.path.append(str(Path(__file__).parents[3]))

from asd import AnomalyDetected, Config
from asd.demo.llama import digest
from asd.injection import Fault
from asd.operators import StepMonitor, disable
from asd.operators.drill.inject import FaultInjector
from asd.operators.gate.slots import table
from asd.operators.rerun import audit, sibling_runs
from benchmarks._host_fault import apply, gradient_fault

DIVIDED = sibling_runs.operators_are_divided
STORIES = {
    "transient": "gradient:norm:flip=30:step=3:rank=1",
    "persistent": "gradient:norm:flip=30:step=3:duration=9:rank=1",
    "weight gradient": "gradient:extra:scale=1e12:step=8:duration=9:rank=1",
    "weight gradient once": "gradient:extra:scale=2e4:step=8:rank=1",
    "weight gradient audited": "gradient:extra:scale=3:step=15:duration=99:rank=1",
    "weight gradient found alone": "gradient:extra:scale=3:step=6:rank=1",
    "weight gradient never": "gradient:extra:scale=1:step=99",
    "weight gradient changed": "gradient:extra:scale=1:step=99",
    "weight gradient scaled": "gradient:extra:scale=1:step=99",
    "weight gradient scaled alone": "gradient:extra:scale=1:step=99",
    "poisoned": None,
    "weights apart": None,
}

mode, *pairs = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
rank, number, story = get_rank(), 0, ""


def strike(gradient):
    """Of the weight `extra`, where it was computed: no checkpoint is there, so no injector finds the place."""
    fault = Fault.parse(STORIES[story])
    well_again = fault.duration == 1 and table().replaying is not story.endswith("alone")
    return apply(fault, gradient) if fault.is_active(number, rank) and not well_again else gradient


class Net(nn.Cell):
    def __init__(self, judged_by_detectors):
        super().__init__()
        self.extra = Parameter(Tensor(np.eye(8), ms.float32)) if judged_by_detectors else None
        self.broken = gradient_fault(strike)
        self.embedding = nn.Embedding(16, 8)
        bias = "scaled" not in story  # whose gradient is 0 before a batch norm
        self.first, self.bn = nn.Dense(8, 8, has_bias=bias), nn.BatchNorm1d(8)
        self.norm, self.last = nn.LayerNorm((8,)), nn.Dense(8, 1)

    def construct(self, x, y):
        x = self.embedding(x)
        if self.extra is not None:
            x = ops.matmul(x, self.broken(self.extra))
        x = self.norm(x + self.bn(self.first(x)))
        return ((self.last(x) - y) ** 2).mean()


def train(told, replay):
    """What is to be said of a training in which the story `told` happens."""
    global number, story
    story = told
    ms.set_seed(1)
    np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
    judged_by_detectors = story.startswith("weight gradient")
    net = Net(judged_by_detectors)
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    train_step = nn.TrainOneStepCell(net, optimizer).set_train()
    events = []
    more = {"enable": 1, "on_anomaly": "stop" if story.endswith("alone") else "skip"}
    if replay not in ("off", "default"):
        more |= {
            "protection": "document",
            "upper": (10**6, 10**5) if story.endswith("changed") else (1000, 100),
            "rule": "adaptive" if judged_by_detectors else "threshold",
            "confirm": 0.01 if replay == "confirm" else 0.0,
            "replay": replay in ("1", "own"),
        }
    monitor = StepMonitor(Config(**more | {"enable": int(replay != "off")}), sinks=[events.append])
    # As under semi-automatic parallel, which MindSpore's CPU back end does not have.
    sibling_runs.operators_are_divided = (lambda: True) if replay == "own" else DIVIDED
    audit.EVERY, audit.FIRST = (2, {"CPU": 2}) if story.endswith("alone") else (12, {"CPU": 10})
    monitor.attach(train_step, optimizer)
    injector = None
    if STORIES[story] and not judged_by_detectors:
        injector = FaultInjector(Fault.parse(STORIES[story]))
        injector.attach(train_step)
    run = train_step if mode == "graph" else lambda *batch: ops.AllReduce()(train_step(*map(Tensor, batch)))
    step = monitor.watch_step(run, audit=story.endswith(("audited", "alone")))
    losses, digests, ended = [], [], ""
    for number in range(1, 24 if story.endswith("audited") else 10 if judged_by_detectors else 7):
        if injector is not None:
            injector.begin_step()
        if story == "weights apart" and number == 3 and rank == 1:
            net.last.weight.copy_(Tensor(net.last.weight.asnumpy() + np.float32(1e6)))
        random = np.random.default_rng([number, rank])
        factor = 1e6 if story == "poisoned" and number == 3 and rank == 1 else 1
        factor = 1e3 if story == "weight gradient changed" and number > 5 else factor
        factor = 2**20 if story.partition("scaled")[1] and rank >= story.endswith("alone") else factor
        batch = random.integers(0, 16, 12, "i4"), (factor * random.normal(size=(12, 1))).astype("f4")
        loss = step(*(batch if mode == "pynative" else map(Tensor, batch))).asnumpy()
        try:
            monitor.step(Tensor(loss))
        except AnomalyDetected as error:
            ended = error.event.incident or error.event.id
            break
        losses.append(loss.tobytes().hex())
        digests.append(digest(net, optimizer))
    disable()
    status = monitor.monitor and monitor.monitor.status
    return {
        **{"rank": rank, "ended": ended, "losses": losses, "digests": digests},
        "events": [[event.step, event.kind, event.verdict, event.reason] for event in events],
        "named": [[event.step, event.kind, event.level.name, event.rank, event.checkpoint] for event in events],
        "audit": monitor.monitor and monitor.monitor.protections.on.get("audit"),
        **{"refused": status and status.refused, "changes": len(injector.changes) if injector else 0},
    }


for pair in zip(pairs[::2], pairs[1::2], strict=True):
    print("RANK " + json.dumps(train(*pair)), flush=True)

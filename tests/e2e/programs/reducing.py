"""One of two ranks that train together: `reducing.py MODE FAULT STYLE`; started by msrun.

In step 4 one element of what the all-reduce returns is a little off: `never`, on `one` rank or on `both`; `again` is
`one`, and the step is replayed; `once` is `one` with a second look, in which it is right. With `bare` nothing is
checked. STYLE is `cell` for MindSpore's training cell, or `loop` for a function around `value_and_grad`. Each rank
prints one JSON object per step.
"""

import json
import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.communication import get_rank, init
from mindspore.ops import functional as F  # noqa: N812

from asd import Config
from asd.operators import StepMonitor
from asd.operators.drill.workload import digest

mode, fault, style = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(8, 64), nn.LayerNorm((64,)), nn.Dense(64, 1)

    def construct(self, x, y):
        return ((self.last(self.norm(self.first(x))) - y) ** 2).mean()


class Faulty(nn.DistributedGradReducer):
    """Its first mean has an error of `error` in one element."""

    asd_original = nn.DistributedGradReducer  # so that it is taken for MindSpore's own

    def construct(self, gradients):
        means = super().construct(gradients)
        return (means[0] + self.error * self.place, *means[1:])


ms.set_seed(1)
np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
rank = get_rank()
net = Net()
optimizer = nn.Adam(net.trainable_params(), 1e-2)
cell = nn.TrainOneStepCell(net, optimizer).set_train()
reducer = cell.grad_reducer
reducer.__class__ = Faulty
differentiated = ms.value_and_grad(net, None, optimizer.parameters)


def loop(x, y):
    loss, gradients = differentiated(x, y)
    return F.depend(loss, optimizer(reducer(gradients)))


train_step = cell if style == "cell" else ms.jit(loop) if mode == "graph" else loop
place = np.zeros((64, 8), np.float32)
place[5, 3] = 1
reducer.place = Tensor(place)
error = reducer.error = Parameter(Tensor([0.0], ms.float32), name="error", requires_grad=False)
settings = {"rule": "adaptive", "tiers": ("checksum",), "confirm": 0.01} if fault == "once" else {}
config = Config(
    protection="document", **{"enable": int(fault != "bare"), "on_anomaly": "skip", "tiers": ("checksum",), **settings}
)
monitor = StepMonitor(config, sinks=[], replay=fault == "again")
monitor.attach(cell if style == "cell" else net, optimizer, reducer=None if style == "cell" else reducer)
runs = []


def run(*batch):
    strikes = step == 4 and (fault == "both" or (fault in {"one", "again", "once"} and rank == 1))
    strikes &= fault != "once" or runs.count(4) == 0
    error.copy_(Tensor([2e-3 if strikes else 0.0], ms.float32))  # `set_data` never reaches a graph made by `jit`
    runs.append(step)
    return train_step(*batch)


watched = monitor.watch_step(run)
targets = Tensor(np.ones((4, 1), np.float32))
for step in range(1, 7):
    before = digest(net, optimizer)
    batch = np.random.default_rng([step, rank]).normal(size=(4, 8)).astype(np.float32)
    events = monitor.step(watched(Tensor(batch), targets))
    after = digest(net, optimizer)
    told = [[event.kind, event.checkpoint, event.reason, event.rank] for event in events]
    print("STEP " + json.dumps({"step": step, "refused": before == after, "digest": after, "told": told}), flush=True)

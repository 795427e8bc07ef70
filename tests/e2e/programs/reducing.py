"""One of two ranks that train together, without checks and with them: `reducing.py MODE`; started by msrun."""

import json
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init

from asd import Config
from asd.operators import StepMonitor, disable
from asd.operators.drill.workload import digest

(mode,) = sys.argv[1:]
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


def train(enable):
    ms.set_seed(1)
    np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
    net = Net()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    cell = nn.TrainOneStepCell(net, optimizer).set_train()
    monitor = StepMonitor(Config(enable=enable, on_anomaly="skip"), sinks=[])
    monitor.attach(cell, optimizer)
    watched = monitor.watch_step(cell)
    targets = Tensor(np.ones((4, 1), np.float32))
    for step in range(1, 7):
        batch = np.random.default_rng([step, get_rank()]).normal(size=(4, 8)).astype(np.float32)
        events = monitor.step(watched(Tensor(batch), targets))
        told = [[event.kind, event.checkpoint, event.reason, event.rank] for event in events]
        line = {"checked": bool(enable), "step": step, "digest": digest(net, optimizer), "told": told}
        print("STEP " + json.dumps(line), flush=True)
    disable()


for enable in (0, 1):
    train(enable)

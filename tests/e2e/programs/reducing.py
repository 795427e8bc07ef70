"""One of two ranks that train together, without checks and with them: `reducing.py MODE`; started by msrun."""

import json
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init
from small_net import Net

from asd import Config
from asd.operators import StepMonitor, disable
from asd.operators.drill.workload import digest

(mode,) = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)


def train(enable):
    ms.set_seed(1)
    np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
    net = Net(64)
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

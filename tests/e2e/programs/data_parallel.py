"""One of two ranks that train together: `data_parallel.py MODE ACTION`; started by msrun."""

import json
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init

from asd import AnomalyDetected, Config
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import FaultInjector
from asd.operators.drill.workload import digest

mode, action = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(8, 8), nn.LayerNorm((8,)), nn.Dense(8, 1)

    def construct(self, x, y):
        return ((self.last(self.norm(self.first(x))) - y) ** 2).mean()


ms.set_seed(1)
np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
rank = get_rank()
net = Net()
optimizer = nn.Adam(net.trainable_params(), 1e-2)
monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly=action))
monitor.attach(net, optimizer)
injector = FaultInjector(Fault.parse("gradient:norm:flip=30:step=3:rank=1"))
injector.attach(net)
train_step = nn.TrainOneStepCell(net, optimizer).set_train()
targets = Tensor(np.ones((4, 1), np.float32))


def tell(step, before, **more):
    after = digest(net, optimizer)
    line = {"rank": rank, "step": step, "refused": before == after, "digest": after, **more}
    print("STEP " + json.dumps(line), flush=True)


for step in range(1, 6):
    injector.begin_step()
    before = digest(net, optimizer)
    batch = np.random.default_rng([step, rank]).normal(size=(4, 8)).astype(np.float32)
    outputs = train_step(Tensor(batch), targets)
    try:
        events = monitor.step(outputs)
    except AnomalyDetected as error:
        tell(step, before, kinds=[error.event.kind], stopped=True)
        raise
    tell(step, before, kinds=[event.kind for event in events])

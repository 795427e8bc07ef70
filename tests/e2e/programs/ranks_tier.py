"""One of several ranks that train together with the tier that compares them; started by msrun."""

import json

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init

from asd import Config
from asd.operators import StepMonitor

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Dense(8, 8), nn.LayerNorm((8,))

    def construct(self, x, y):
        return ((self.norm(self.first(x)) - y) ** 2).mean()


ms.set_seed(1)
np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
rank = get_rank()
net = Net()
optimizer = nn.Adam(net.trainable_params(), 1e-3)
monitor = StepMonitor(
    Config(protection="document", enable=1, on_anomaly="log", rule="adaptive", tiers=("ranks",)), sinks=[]
)
monitor.attach(net, optimizer)
train_step = nn.TrainOneStepCell(net, optimizer).set_train()
for step in range(1, 10):
    if step == 8 and rank == 2:
        net.norm.gamma.set_data(net.norm.gamma * 256)
    batch = np.random.default_rng([step, rank]).normal(size=(4, 8)).astype(np.float32)
    outputs = train_step(Tensor(batch), Tensor(np.ones((4, 8), np.float32)))
    for event in monitor.step(outputs):
        line = [rank, event.step, event.checkpoint, event.kind, event.level.name, event.reason]
        print("EVENT " + json.dumps(line), flush=True)
print("DONE", flush=True)

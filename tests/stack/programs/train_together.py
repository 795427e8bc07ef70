"""One of two ranks that train together: `train_together.py STEPS`; started by msrun."""

import sys
import time

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_rank, init

from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import FaultInjector

steps = int(sys.argv[1])
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)


class RmsNorm(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(8, np.float32)))

    def construct(self, x):
        return x * ops.rsqrt((x * x).mean(-1, keep_dims=True) + 1e-6) * self.weight


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(8, 8), RmsNorm(), nn.Dense(8, 1)

    def construct(self, x, y):
        return ((self.last(self.norm(self.first(x))) - y) ** 2).mean()


ms.set_seed(1)
np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
net = Net()
optimizer = nn.Adam(net.trainable_params(), 1e-2)
monitor = StepMonitor()
monitor.attach(net, optimizer)
injector = FaultInjector(Fault.parse(f"gradient:norm:flip=30:step={steps // 2}:rank=1"))
injector.attach(net)
train_step = nn.TrainOneStepCell(net, optimizer).set_train()
targets = Tensor(np.ones((4, 1), np.float32))
for step in range(1, steps + 1):
    injector.begin_step()
    batch = np.random.default_rng([step, get_rank()]).normal(size=(4, 8)).astype(np.float32)
    monitor.step(train_step(Tensor(batch), targets))
    time.sleep(0.25)  # so that the training lasts for several scrapes
monitor.close()

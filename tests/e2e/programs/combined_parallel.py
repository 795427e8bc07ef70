"""One of two ranks that train together under the vendor's combined scheme: `combined_parallel.py`; by msrun."""

import json
import time

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import get_rank, init
from mindspore.ops import operations as P  # noqa: N812

from asd import Config
from asd.operators import StepMonitor
from asd.settings.combined import CombinedConfig

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)


class Wrong(P.MatMul):
    """A product with one wrong element."""

    def __call__(self, a, b):
        y = super().__call__(a, b)
        hit = ops.one_hot(Tensor([5], ms.int32), y.size, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        return y + hit.reshape(y.shape) * 0.01


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(8, 8), nn.Dense(8, 1)

    def construct(self, x, y):
        return ((self.last(self.first(x)) - y) ** 2).mean()


ms.set_seed(1)
np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
rank = get_rank()
net = Net()
optimizer = nn.SGD(net.trainable_params(), 0.0)
train_step = nn.TrainOneStepCell(net, optimizer).set_train()
scheme = CombinedConfig(enable=True, with_checksum=True, strikes_num=1, grad_sample_interval=1)
monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly="log", combined=scheme))
if rank == 1:
    net.first.matmul = Wrong(transpose_b=True)
monitor.attach(train_step, optimizer)
start = time.time()
events, checked = [], []
for step in range(1, 31):
    monitor.monitor.clock = lambda minute=step: start + 60 * minute
    batch = np.random.default_rng([step, rank]).normal(size=(4, 8)).astype(np.float32)
    wild = 1e6 if step == 15 and rank == 1 else 1
    found = monitor.step(train_step(Tensor(batch * wild), Tensor(np.ones((4, 1), np.float32))))
    events += [(event.step, event.rule, event.level.name, event.checkpoint) for event in found]
    if any(reading.kind == "checksum" for reading in monitor.monitor.readings):
        checked.append(step)
print("END " + json.dumps({"events": events, "checked": checked}), flush=True)

"""A check operator of your own, written as the feature-value detection document does it; only the import is changed.

The embedding checks the gradient of its table. In the fifth step the labels are nonsense.
"""

import os

os.environ["NPU_ASD_ENABLE"] = "1"  # read when an operator is made; in a job: export NPU_ASD_ENABLE=1

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd import Config
from asd.operators import ASDBase, StepMonitor


class GatherASD(ASDBase):
    def __init__(self, *args, **kwargs):
        super().__init__(P.Gather, *args, **kwargs)
        self.pre_val, self.min_val, self.max_val, self.cnt = self.generate_params()

    def __call__(self, input_params, input_indices, axis):
        if self.enable_check:
            input_params = self.check_op(input_params, self.pre_val, self.min_val, self.max_val, self.cnt, None)
            self.cnt += 1
        return self.op(input_params, input_indices, axis)


class Embedding(nn.Cell):
    def __init__(self, words, width):
        super().__init__()
        self.table = Parameter(np.random.default_rng(1).normal(size=(words, width)).astype(np.float32), name="table")
        self.gather = GatherASD()

    def construct(self, ids):
        return self.gather(self.table, ids, 0)


ms.set_device("CPU")
ms.set_context(mode=ms.GRAPH_MODE)
net = nn.SequentialCell([Embedding(100, 16), nn.Dense(16, 1)])
train_step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1)).set_train()
monitor = StepMonitor(Config(enable=1, on_anomaly="skip", protection="document"), sinks=[])
monitor.attach(train_step, train_step.optimizer)

random = np.random.default_rng(1)
for step in range(1, 8):
    ids = Tensor(random.integers(0, 100, (8, 4)).astype(np.int32))
    labels = Tensor(np.full((8, 4, 1), 1e12 if step == 5 else 1, np.float32))
    events = monitor.step(train_step(ids, labels))
    ((name, points),) = monitor.monitor.history.items()
    print(f"step {step}: gradient norm at {name} is {points[-1][1]:.4g}{', update refused' if events else ''}")

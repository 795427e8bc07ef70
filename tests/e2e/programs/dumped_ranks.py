"""A rank that dumps two steps twice; in the second run one bit of a weight of rank 1 is flipped before step 1."""

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(4, 4, weight_init="ones", bias_init="zeros")
        self.second = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")

    def construct(self, x):
        return self.second(self.first(x)).mean()


def train(folder, *, damage):
    net = Net()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.01))
    config = {"task": "md5", "level": "L0", "dump_path": str(folder)}
    debugger = PrecisionDebugger(DebuggerConfig.of(config))
    draw = np.random.default_rng(get_rank())
    for number in range(2):
        if damage and number == 1:
            values = net.second.weight.asnumpy().copy()
            values.view(np.int32).flat[2] ^= 1 << 20
            net.second.weight.set_data(Tensor(values))
        debugger.start(net)
        step(Tensor(draw.standard_normal((2, 4)).astype(np.float32)))
        debugger.stop()
        debugger.step()


ms.set_context(mode=ms.PYNATIVE_MODE)
init()
train(Path(sys.argv[1]) / "golden", damage=False)
train(Path(sys.argv[1]) / "run", damage=get_rank() == 1)

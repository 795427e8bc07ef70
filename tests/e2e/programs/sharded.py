"""One of two ranks of a training whose optimizer is divided: `sharded.py PLACE`; started by msrun."""

import json
import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_rank, init

from asd import Config
from asd.operators import StepMonitor

PLACE, WIDTH, STRUCK, WRONG = sys.argv[1], 16, 8, 1e20
ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
RANK, gather, add = get_rank(), ops.AllGather(), ops.AllReduce()
rng = np.random.default_rng(0)
step = 0


def struck(gradient, place, at):
    """The gradient, with a wrong number where and when this is to be one."""
    if (PLACE, RANK, step) != (place, 1, STRUCK):
        return gradient
    wrong = gradient.asnumpy().copy()
    wrong.flat[at] = WRONG
    return Tensor(wrong)


def dense(inputs, outputs):
    weight = Tensor((rng.standard_normal((outputs, inputs)) * 0.1).astype(np.float32))
    return nn.Dense(inputs, outputs, weight_init=weight, has_bias=False)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm((WIDTH,)), dense(WIDTH, 2 * WIDTH), dense(2 * WIDTH, WIDTH)
        self.hook = ops.HookBackward(lambda gradients: struck(gradients[0], "activation", 5))

    def construct(self, x):
        return self.hook(self.down(ops.gelu(self.up(self.norm(x)))))


def half(array):
    rows = array.shape[0] // 2
    return array[RANK * rows : (RANK + 1) * rows]


net = Net()
weights = net.trainable_params()
halves = [Parameter(Tensor(half(each.asnumpy())), name=each.name) for each in weights]
optimizer, loss_of = nn.Adam(halves, 1e-2), nn.MSELoss()
gradients_of = ms.value_and_grad(lambda x, y: loss_of(net(x), y), None, weights)
monitor = StepMonitor(Config(enable=1, on_anomaly="skip"))
monitor.attach(net, optimizer)
data = np.random.default_rng(10 + RANK)
for step in range(1, 11):
    x = Tensor(data.standard_normal((8, WIDTH)).astype(np.float32))
    before = halves[3].asnumpy().copy()
    loss, gradients = gradients_of(x, x * 0.5)
    *others, down = gradients
    summed = [half(add(each) / 2) for each in (*others, struck(down, "weight", 3))]
    optimizer(tuple(summed))
    for weight, each in zip(weights, halves, strict=True):
        weight.set_data(gather(each))
    refused = bool((halves[3].asnumpy() == before).all())
    print("STEP " + json.dumps({"step": step, "refused": refused}), flush=True)
    monitor.step(loss)

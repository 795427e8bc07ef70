"""A loop of your own: `attach` before the first step, `step` after each; a bad update never reaches the weights.

The labels of the sixth batch are nonsense, so its gradients are far too large.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from asd import Config
from asd.operators import StepMonitor


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(16, 32), nn.LayerNorm((32,)), nn.Dense(32, 1)

    def construct(self, x):
        return self.last(self.norm(self.first(x)))


ms.set_device("CPU")
ms.set_context(mode=ms.PYNATIVE_MODE)
net = Net()
optimizer = nn.AdamWeightDecay(net.trainable_params(), learning_rate=1e-2)
loss_fn = nn.MSELoss()

# Without a Config the settings come from the environment: NPU_ASD_ENABLE, ASD_ON_ANOMALY, ...
monitor = StepMonitor(Config(enable=1, on_anomaly="skip"), sinks=[])
monitor.attach(net, optimizer)
forward_and_backward = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)


def train_step(x, y):
    loss, gradients = forward_and_backward(x, y)
    optimizer(gradients)
    return loss


train_step = monitor.watch_step(train_step)  # marks where a step begins, so that it can be re-run
random = np.random.default_rng(1)
for step in range(1, 11):
    x = random.normal(size=(8, 16)).astype(np.float32)
    y = x.sum(axis=1, keepdims=True) * (1e12 if step == 6 else 1)
    before = net.last.weight.asnumpy().copy()
    loss = train_step(Tensor(x), Tensor(y))
    events = monitor.step(loss)  # raises AnomalyDetected with on_anomaly="stop", the default
    changed = not np.array_equal(before, net.last.weight.asnumpy())
    print(f"step {step}: loss {float(loss):.4g}, weights {'changed' if changed else 'kept'}")
    for event in events[:1]:
        print(f"  {event.code} at {event.checkpoint}: value {event.value:.3g}, limit {event.limits[0]:.3g}")

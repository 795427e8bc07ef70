"""Small networks whose results are sampled, and a training of one of them by hand."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

from asd import Config
from asd.operators import StepMonitor
from asd.rules.reading import SCORES

WIDTH = 16


class Linear(nn.Cell):
    """As mindformers 2.x has it: the product is a function."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = Parameter(np.ones((outputs, inputs), np.float32), name="weight")
        self.matmul = mint.matmul

    def construct(self, x):
        return self.matmul(x, ops.transpose(self.weight, (1, 0)))


class Attention(nn.Cell):
    """Two batched products, and three of one input."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Dense(WIDTH, WIDTH) for _ in range(3))
        self.scores, self.mix, self.act = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul(), nn.Tanh()

    def construct(self, x):
        return self.mix(self.act(self.scores(self.query(x), self.key(x))), self.value(x))


class Branches(nn.Cell):
    """A value with several readers, weights that are used twice, a norm that is sometimes kept in float32."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm((WIDTH,)), Attention()
        self.up, self.down, self.act = nn.Dense(WIDTH, 3 * WIDTH), Linear(3 * WIDTH, WIDTH), nn.GELU()

    def construct(self, x):
        h = x + self.attention(self.norm(x))
        for _ in range(2):
            h = h + x + self.down(self.act(self.up(h)))
        return h


class Perceptron(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Dense(2 * WIDTH, WIDTH)

    def construct(self, x):
        return self.last(self.act(self.first(x)))


class Convolutions(nn.Cell):
    """With moving statistics, and random numbers."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.pool = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2, 2)
        self.flatten, self.drop, self.head = nn.Flatten(), nn.Dropout(p=0.0), nn.Dense(4 * 2 * 8, WIDTH)
        self.matmul = mint.matmul

    def construct(self, x):
        image = self.pool(ops.relu(self.bn(self.conv(x.reshape((-1, 1, 4, WIDTH))))))
        h = self.head(self.drop(self.flatten(image)))
        return self.matmul(h, other=ops.eye(WIDTH, dtype=h.dtype))


NETS = {"branches": Branches, "perceptron": Perceptron, "convolutions": Convolutions}


class Run:
    """A training of one of the nets."""

    def __init__(self, make, half=False, monitored=True, before=None, **settings):
        self.net = make()
        self.net.set_train()
        for number, weight in enumerate(self.net.trainable_params()):
            weight.set_data(Tensor(np.random.default_rng(number).normal(0, 0.2, weight.shape).astype(np.float32)))
        if half:
            self.net.to_float(ms.float16)
            for _, cell in self.net.cells_and_names():
                if isinstance(cell, nn.LayerNorm):
                    cell.to_float(ms.float32)
        self.optimizer = nn.Momentum(self.net.trainable_params(), 1e-3, 0.9)
        self.events, self.losses, self.seen, self.number = [], [], {}, 0
        self.monitor = None
        if before is not None:
            before(self.net)
        if monitored:
            self.monitor = StepMonitor(
                Config(enable=1, **{"on_anomaly": "skip", "protection": "full", **settings}), sinks=[self.events.append]
            )
            self.monitor.attach(self.net, self.optimizer)
        gradients = ms.value_and_grad(self.loss, None, self.optimizer.parameters)

        def step(x, y):
            loss, found = gradients(x, y)
            self.optimizer(found)
            return loss

        self.run = step if self.monitor is None else self.monitor.watch_step(step)

    def loss(self, x, y):
        return ((self.net(x).astype(ms.float32) - y) ** 2).mean()

    def step(self, scale=1.0):
        generator = np.random.default_rng(self.number)
        x, y = (Tensor((scale * generator.normal(size=(2, 4, WIDTH))).astype(np.float32)) for _ in range(2))
        self.number += 1
        loss = self.run(x, y[:, 0] if isinstance(self.net, Convolutions) else y)
        self.losses.append(loss.asnumpy().tobytes())
        if self.monitor is not None:
            self.monitor.step(loss)
            self.seen |= {each.checkpoint: each.value for each in self.monitor.monitor.readings if each.kind in SCORES}
        return self

    def steps(self, count):
        for _ in range(count):
            self.step()
        return self

    def weights(self):
        return {each.name: each.asnumpy().tobytes() for each in self.net.get_parameters()}

    def problems(self):
        return [event.reason for event in self.events if "not computed" in event.reason]

    def findings(self):
        return [(event.step, event.checkpoint, event.kind) for event in self.events if event.rule == "checksum"]

"""A small network for the tests of the debugger, trained in PyNative."""

import contextlib
import json

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger


class Branches(nn.Cell):
    """Its input is used twice inside and once outside, where an identity would change the order of a sum."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 8, weight_init="ones", bias_init="zeros")
        self.mul = ops.Mul()

    def construct(self, x):
        return self.mul(self.dense(x), x) * 0.1


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(8, 8, weight_init="ones", bias_init="zeros")
        self.branches = Branches()
        self.head = nn.Dense(8, 1, weight_init="ones", bias_init="zeros")

    def construct(self, x):
        x = ops.tanh(self.first(x) * 0.1)
        x = x + self.branches(x)
        return self.head(x).mean()


def batches(count):
    draw = np.random.default_rng(5)
    return [Tensor(draw.standard_normal((4, 8)).astype(np.float32)) for _ in range(count)]


@contextlib.contextmanager
def recording(net, folder, **settings):
    """What is done inside is recorded, by default all of it with check sums; gives the debugger."""
    config = {"task": "md5", "level": "mix", "dump_path": str(folder), **settings}
    debugger = PrecisionDebugger(DebuggerConfig.of(config))
    debugger.start(net)
    yield debugger
    debugger.stop()


def recorded(step, net, given, debugger):
    """The losses of a step for each batch, which a debugger records if there is one."""
    losses = []
    for batch in given:
        if debugger:
            debugger.start(net)
        loss = step(batch)
        if debugger:
            debugger.stop()
            debugger.step()
        losses.append(float(loss.asnumpy()).hex())
    return losses


def trained(config=None, steps=2, scale=1.0):
    """Losses, weights and the network after some steps."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))
    debugger = PrecisionDebugger(DebuggerConfig.of(config)) if config else None
    losses = recorded(lambda batch: step(batch * scale), net, batches(steps), debugger)
    return losses, [parameter.asnumpy().tobytes() for parameter in net.get_parameters()]


def dump_of(folder, step=0):
    rank = folder / f"step{step}" / "rank0"
    return tuple(json.loads((rank / f"{name}.json").read_text()) for name in ("dump", "stack", "construct"))

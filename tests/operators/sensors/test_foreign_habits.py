"""What people do with networks and optimizers besides training still works once these are watched."""

import copy

import mindspore as ms
import numpy as np
import pytest
from checked_nets import Decoder, batch, fill, ids, targets, values
from mindspore import Tensor, nn, ops

from asd import Config
from asd.operators import StepMonitor, enable
from asd.operators.gate.guard import guard

pytestmark = pytest.mark.usefixtures("clean")


def test_a_copy_of_a_watched_network_computes_what_the_network_does_and_has_weights_of_its_own(mode):
    net = fill(Decoder())
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
    monitor = StepMonitor(Config(protection="full", enable=1), sinks=[])
    step = nn.TrainOneStepCell(net, optimizer)
    monitor.attach(step, optimizer)
    x, y = ids(), targets()
    monitor.step(step(x, y))
    copied = copy.deepcopy(net)
    before = values(copied.get_parameters())
    assert copied(x, y).asnumpy() == net(x, y).asnumpy()
    monitor.step(step(x, y))
    after = values(copied.get_parameters())
    assert all(before[name].tobytes() == value.tobytes() for name, value in after.items())
    assert copied(x, y).asnumpy() != net(x, y).asnumpy()


@pytest.mark.usefixtures("enabled")
def test_copies_of_a_layer_with_a_check_stand_in_one_graph(graph):
    enable()
    net = nn.SequentialCell(*map(copy.deepcopy, [nn.SequentialCell(nn.LayerNorm((4,)))] * 2))
    assert ms.grad(net)(Tensor(np.ones((2, 4), np.float32))).shape == (2, 4)


class WithRate(nn.Optimizer):
    def __init__(self, weights):
        super().__init__(0.1, weights)

    def construct(self, gradients, rate=None):
        for weight, gradient in zip(self.parameters, gradients):  # noqa: B905 - a graph knows no `strict`
            ops.assign_sub(weight, gradient * (0.5 if rate is None else rate))
        return True


class Compiled(WithRate):
    construct = ms.jit(WithRate.construct)


@pytest.mark.parametrize(("make", "mode"), [(WithRate, "graph"), (Compiled, "pynative")], indirect=["mode"])
def test_a_guarded_optimizer_takes_arguments_by_name(make, mode):
    net = nn.Dense(8, 8, weight_init="ones", has_bias=False)
    optimizer = guard(make(net.trainable_params()), gradients=True)
    gradients = tuple(ops.ones_like(weight) for weight in optimizer.parameters)
    for words in ({"rate": Tensor(0.25)}, {"rate": 0.125}, {}):
        optimizer(gradients, **words)
    assert net.weight.asnumpy().tolist() == np.full((8, 8), 0.125).tolist()
    assert net(batch()).shape == (6, 8)

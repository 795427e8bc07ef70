"""Checked products and norms in half precision: what MindSpore casts unseen is cast beside a check as well."""

from functools import cache

import mindspore as ms
import numpy as np
import pytest
from checked_nets import SLOW, assert_same_bits, fill, values, with_check_operators
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812

from asd import Config
from asd.operators import LayerNormASD, StepMonitor

pytestmark = pytest.mark.usefixtures("clean")


class Net(nn.Cell):
    """Layers that MindSpore casts as a whole, and products and a norm that cells of one's own hold as operators."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(10, 16), nn.LayerNorm((16,))
        self.first, self.last = nn.Dense(16, 16), nn.Dense(16, 4)
        self.weight = Parameter(Tensor(np.zeros((16, 16), np.float32)), name="weight")
        self.matmul, self.scores = P.MatMul(), P.BatchMatMul(transpose_b=True)

    def construct(self, ids):
        x = self.norm(self.embedding(ids))
        x = x + self.multiplied(ops.relu(self.first(x)).astype(x.dtype))
        return self.last(x) + self.scores(x.reshape((2, 4, 16)), x.reshape((2, 4, 16))).mean()

    def multiplied(self, x):
        return self.matmul(x, self.weight)


class Loss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def construct(self, ids, target):
        return (self.net(ids).astype(ms.float32) - target).square().mean() * 1e-3


PRECISIONS = {
    "to_float": lambda net: net.to_float(ms.float16),
    "dense alone": lambda net: [layer.to_float(ms.float16) for layer in (net.first, net.last)] and net,
    "O2": lambda net: ms.amp.auto_mixed_precision(net, "O2"),
    "O3": lambda net: ms.amp.auto_mixed_precision(net, "O3"),
}


def run(precision, monitor=None, *, attach_first=False):
    """Losses and weights of a short training, in the precision set before or after `monitor` was attached."""
    net = fill(Net())
    weights = net.trainable_params()
    optimizer = nn.Adam(weights, 1e-2)
    if monitor is not None and attach_first:
        monitor.attach(net, optimizer)
    net = PRECISIONS[precision](net)
    if monitor is not None and not attach_first:
        monitor.attach(net, optimizer)
    step = nn.TrainOneStepCell(Loss(net), optimizer)
    losses = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        ids, target = random.integers(0, 10, 8).astype(np.int32), random.normal(size=(8, 4)).astype(np.float32)
        losses.append(float(step(Tensor(ids), Tensor(target))))
        if monitor is not None:
            monitor.step()
    return losses, values(weights)


@cache
def bare(precision, _mode):
    """Those without detection, made once in each mode."""
    return run(precision)


@pytest.mark.parametrize(
    ("precision", "attach_first", "mode"),
    [
        *(("to_float", False, "graph"), ("dense alone", False, "pynative")),
        *(
            pytest.param(*each, marks=SLOW)
            for each in (("O2", True, "graph"), ("to_float", True, "pynative"), ("O2", False, "pynative"))
        ),
    ],
    indirect=["mode"],
)
def test_a_training_in_half_precision_is_the_same_beside_checks_bit_for_bit(precision, attach_first, mode):
    losses, weights = bare(precision, mode)
    events = []
    monitor = StepMonitor(Config(enable=1), sinks=[events.append])
    checked_losses, checked_weights = run(precision, monitor, attach_first=attach_first)
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    assert not events
    assert len(monitor.monitor.history) > len(weights)


@pytest.mark.parametrize(
    ("precision", "mode"),
    [("O2", "graph"), *(pytest.param(each, "pynative", marks=SLOW) for each in ("to_float", "O3"))],
    indirect=["mode"],
)
def test_check_operators_in_the_place_of_mindspores_own_see_the_weights_cast_as_those_do(precision, mode, enabled):
    losses, weights = bare(precision, mode)
    with with_check_operators():
        checked_losses, checked_weights = run(precision, StepMonitor(sinks=[]))
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)


class Norm(nn.Cell):
    def __init__(self, operator):
        super().__init__()
        self.operator, self.weight = operator, Parameter(np.linspace(0.1, 3.3, 16, dtype=np.float32), name="weight")

    def construct(self, x):
        return self.operator(x * self.weight, self.weight, self.weight)[0]


def test_a_check_operator_sees_its_weights_cast_though_no_monitor_is_attached_to_its_network(graph, enabled):
    x, found = Tensor(np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)), []
    for make in (P.LayerNorm, LayerNormASD):
        net = Norm(make(-1, -1)).to_float(ms.float16)
        found.append({"y": net(x).asnumpy(), "dw": ms.grad(net, None, net.trainable_params())(x)[0].asnumpy()})
    assert_same_bits(*found)


class ComposedNorm(nn.Cell):
    """It stays in float32 in a network that is cast, and returns the type that it gets."""

    def construct(self, x):
        wide = x.astype(ms.float32)
        return (wide * ops.rsqrt((wide * wide).mean(-1, True) + 1e-6)).astype(x.dtype)


class Residual(nn.Cell):
    """Three layers read the norm: the type in which their gradients are summed shows in the bits."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(8, 16), ComposedNorm(), nn.Dense(16, 4)
        self.query, self.key, self.value = nn.Dense(16, 16), nn.Dense(16, 16), nn.Dense(16, 16)

    def construct(self, x, target):
        x = self.first(x)
        y = self.norm(x)
        out = self.last(x + ops.relu(self.query(y)) * ops.sigmoid(self.key(y)) + self.value(y))
        return (out.astype(ms.float32) - target).square().mean()


def test_a_norm_that_stays_in_float32_returns_the_type_that_it_returns_unchecked(mode):
    x, target = (np.random.default_rng(1).normal(size=(6, width)).astype(np.float32) for width in (8, 4))
    found = []
    for checked in (False, True):
        net = fill(Residual()).to_float(ms.float16)
        net.norm.to_float(ms.float32)
        optimizer = nn.Adam(net.trainable_params(), 1e-2)
        if checked:
            config = Config(protection="document", enable=1, rule="adaptive")
            StepMonitor(config, sinks=[]).attach(net, optimizer)
        step = nn.TrainOneStepCell(net, optimizer)
        losses = [float(step(Tensor(x), Tensor(target))) for _ in range(3)]
        found.append((losses, values(net.trainable_params())))
    assert found[0][0] == found[1][0]
    assert_same_bits(found[1][1], found[0][1])


class Normed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm, self.dense = nn.LayerNorm((4,)), nn.Dense(4, 4)

    def construct(self, x):
        return self.dense(self.norm(x))


def test_amp_that_writes_the_source_anew_takes_a_network_with_check_operators(enabled):
    x = Tensor(np.arange(8, dtype=np.float32).reshape(2, 4))
    bare = ms.amp.auto_mixed_precision(fill(Normed()), "O1")(x).asnumpy()
    with with_check_operators():
        checked = ms.amp.auto_mixed_precision(fill(Normed()), "O1")(x).asnumpy()
    np.testing.assert_array_equal(checked, bare)

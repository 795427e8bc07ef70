"""Checked products and norms in half precision: what MindSpore casts unseen is cast beside a check as well."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, fill, values
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812

from asd import Config
from asd.operators import StepMonitor, enable, slots
from asd.operators.look import make_look

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


@pytest.mark.parametrize(
    ("precision", "attach_first"),
    [("to_float", True), ("to_float", False), ("dense alone", False), ("O2", True), ("O2", False), ("O3", False)],
)
def test_a_training_in_half_precision_is_the_same_beside_checks_bit_for_bit(precision, attach_first, corner):
    losses, weights = run(precision)
    events = []
    monitor = StepMonitor(Config(enable=1), sinks=[events.append], checksum=True)
    checked_losses, checked_weights = run(precision, monitor, attach_first=attach_first)
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    assert not events
    assert sum(".checksum" in name for name in monitor.monitor.history) == 3 * 5  # four products and a norm


@pytest.mark.parametrize("precision", [name for name in PRECISIONS if name != "dense alone"])
def test_check_operators_in_the_place_of_mindspores_own_see_the_weights_cast_as_those_do(precision, mode, enabled):
    losses, weights = run(precision)
    with enable():
        checked_losses, checked_weights = run(precision, StepMonitor(sinks=[]))
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)


class Normed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm, self.dense = nn.LayerNorm((4,)), nn.Dense(4, 4)

    def construct(self, x):
        return self.dense(self.norm(x))


def test_amp_that_writes_the_source_anew_takes_a_network_with_check_operators(mode, enabled):
    x = Tensor(np.arange(8, dtype=np.float32).reshape(2, 4))
    bare = ms.amp.auto_mixed_precision(fill(Normed()), "O1")(x).asnumpy()
    with enable():
        checked = ms.amp.auto_mixed_precision(fill(Normed()), "O1")(x).asnumpy()
    np.testing.assert_array_equal(checked, bare)


class Expert(nn.Cell):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = (nn.Dense(a, b, has_bias=False) for a, b in ((16, 24), (16, 24), (24, 16)))

    def construct(self, x):
        return self.down(ops.silu(self.gate(x)) * self.up(x))


class Mixture(nn.Cell):
    """Experts and a gate that all read one tensor: the order in which its gradients are summed shows in their bits."""

    def __init__(self):
        super().__init__()
        self.first, self.gate, self.last = nn.Dense(8, 16), nn.Dense(16, 2, has_bias=False), nn.Dense(16, 4)
        self.experts = nn.CellList([Expert(), Expert()])

    def construct(self, x):
        x = self.first(x)
        shares = ops.softmax(self.gate(x), -1)
        y = x * 0
        for i in range(2):
            y = y + self.experts[i](x) * shares[:, i : i + 1]
        return self.last(x + y).square().mean()


def train_mixture(monitor=None):
    net = fill(Mixture())
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    if monitor is not None:
        monitor.attach(net, optimizer)
    step = nn.TrainOneStepCell(net, optimizer)
    losses = []
    for seed in range(4):
        losses.append(float(step(Tensor(np.random.default_rng(seed).normal(size=(32, 8)).astype(np.float32)))))
        if monitor is not None:
            monitor.step()
    return losses, values(net.get_parameters())


@pytest.mark.parametrize("tiers", ["finite,adaptive,state", "finite,adaptive,state,checksum"])
def test_the_gradients_of_a_value_with_many_users_are_summed_in_the_same_order_beside_checks(tiers, mode, backend):
    losses, weights = train_mixture()
    config = Config.from_env({"NPU_ASD_ENABLE": "1", "ASD_RULE": "adaptive", "ASD_TIERS": tiers})
    checked_losses, checked_weights = train_mixture(StepMonitor(config, sinks=[]))
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)


@pytest.mark.parametrize("backend", ["kernel"], indirect=True)
def test_the_smallest_numbers_of_float16_are_no_zeros_in_a_compiled_graph(backend):
    # MindSpore's threads take denormal numbers for zero.
    ms.set_context(mode=ms.GRAPH_MODE)
    site = slots.table().new_site("tiny")
    look = make_look(site)
    tiny = np.float16([2**-24, 3 * 2**-20, -(2**-15)])

    def looked(x):
        return look(x)

    ms.jit(looked)(Tensor(tiny)).asnumpy()
    (reading,) = slots.table().read([site])
    assert reading.max_abs == 2**-15
    assert reading.l2 == pytest.approx(np.linalg.norm(tiny.astype(np.float64)), rel=1e-6)
    ms.set_context(mode=ms.PYNATIVE_MODE)

"""Norms that are computed again in a training: the same numbers as without, and the layer whose norm is wrong."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, batch, fill, trained
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812

from asd import AnomalyDetected, Config
from asd.operators import Checksum, NormASD, StepMonitor, enable, install, install_checksum
from asd.operators.measure.tap import alias
from asd.operators.table import slots

pytestmark = pytest.mark.usefixtures("clean")


class Block(nn.Cell):
    """Norms of every kind: in a residual, of channels, by hand, without a mean; the output is the loss."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 8)
        self.norm = nn.LayerNorm((8,))
        self.grouped = nn.GroupNorm(2, 4)
        self.bare = P.LayerNorm(-1, -1, 1e-5)
        self.gamma = Parameter(Tensor(np.ones(8, np.float32)), name="gamma")
        self.beta = Parameter(Tensor(np.zeros(8, np.float32)), name="beta")

    def construct(self, x):
        x = x + self.norm(self.dense(x))
        y = self.grouped(x.reshape((3, 4, 2, 2))).reshape((6, 8))
        return (y + self.bare(x, self.gamma, self.beta)[0]).square().mean() + (y * x).mean()


def monitor_of(**plan):
    return StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=Checksum(**plan))


def scores(monitor):
    return {name: [row[1] for row in rows] for name, rows in monitor.monitor.history.items() if ".checksum" in name}


@pytest.mark.parametrize(("mode", "plan"), [("graph", {"every": 3}), ("pynative", {"every": 1})], indirect=["mode"])
def test_a_training_is_the_same_with_and_without_checks_of_its_norms_bit_for_bit(mode, plan):
    losses, weights = trained(Block(), steps=6)
    monitor = monitor_of(**plan)
    checked_losses, checked_weights = trained(Block(), monitor, steps=6)
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    found = scores(monitor)
    assert {f"{place}.checksum{part}" for place in ("norm", "grouped", "bare") for part in ("", "_dx", "_dw")} <= set(
        found
    )
    assert all(0 < max(seen) < 1 for seen in found.values())
    assert all(len(seen) == (6 if plan["every"] == 1 else 2) for seen in found.values())


class _Struck(nn.Cell):
    """Identity that adds to one element, of what passes or of its gradient."""

    def __init__(self, by):
        super().__init__(auto_prefix=False)
        self.by = by

    def hit(self, x):
        where = ops.one_hot(Tensor([5], ms.int32), x.size, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        return x + where.reshape(x.shape) * self.by


class StruckOutput(_Struck):
    def construct(self, x):
        return self.hit(x)


class StruckGradient(_Struck):
    def construct(self, x):
        return alias(x)

    def bprop(self, x, out, dout):
        return (self.hit(dout),)


class StruckNorm(nn.Cell):
    """A norm that computes one of its results wrong."""

    def __init__(self, norm, part, by=0.1):
        super().__init__(auto_prefix=False)
        self.norm, self.part = norm, part
        self.output, self.gradient = StruckOutput(by), StruckGradient(by)

    def construct(self, x, gamma, beta):
        x = self.gradient(x) if self.part == "_dx" else x
        gamma = self.gradient(gamma) if self.part == "_dw" else gamma
        outputs = self.norm(x, gamma, beta)
        return (self.output(outputs[0]), *outputs[1:]) if self.part == "" else outputs


@pytest.mark.parametrize(("mode", "part"), [("graph", ""), ("pynative", "_dx"), ("pynative", "_dw")], indirect=["mode"])
def test_a_wrong_norm_is_named_and_its_update_refused(mode, part):
    def strike(net):
        checked = net.norm.layer_norm.checked
        checked.norm = StruckNorm(checked.norm, part)

    with pytest.raises(AnomalyDetected) as caught:
        trained(Block(), monitor_of(every=1), before=strike)
    event = caught.value.event
    assert (event.checkpoint, event.step, event.rule, event.feature) == (f"norm.checksum{part}", 1, "checksum", "score")
    assert "the norm" in event.reason
    assert event.refused
    assert event.value > 1


@pytest.mark.parametrize("before", [True, False], ids=["taps first", "checks first"])
def test_checks_of_norms_and_taps_on_them_live_side_by_side(mode, before):
    """Taps give a cell another class, and so do checks to a group norm."""
    net = fill(Block())
    x = batch()
    expected = ops.value_and_grad(net, None, net.trainable_params())(x)
    net = fill(Block())
    steps = [lambda: install(net), lambda: install_checksum(net)]
    for step in steps if before else steps[::-1]:
        step()
    plan = Checksum(every=1)
    plan.begin_step(1)
    loss, gradients = ops.value_and_grad(net, None, net.trainable_params())(x)
    assert loss.asnumpy().tobytes() == expected[0].asnumpy().tobytes()
    plan.stop()
    for found, wanted in zip(gradients, expected[1], strict=True):
        np.testing.assert_array_equal(found.asnumpy(), wanted.asnumpy())
    table = slots.table()
    seen = {reading.checkpoint for reading in table.read(table.sites()) if reading.calls}
    assert {"norm", "grouped", "norm.checksum", "grouped.checksum", "grouped.checksum_dx"} <= seen


@pytest.mark.parametrize("cell", ["layer", "rms"])
def test_norms_that_the_checking_operators_replace_are_computed_again_inside_them(mode, cell):
    class RMSNorm(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm = P.RmsNorm(1e-6)
            self.weight = Parameter(Tensor(np.ones(8, np.float32)), name="weight")

        def construct(self, x):
            return self.norm(x, self.weight)[0]

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.first = nn.Dense(8, 8)
            self.norm = nn.LayerNorm((8,)) if cell == "layer" else RMSNorm()

        def construct(self, x):
            x = self.first(x)
            return (x + self.norm(x)).square().mean()

    with enable():
        plain = trained(Net())
        monitor = monitor_of(every=1)
        checked = trained(Net(), monitor)
    assert checked[0] == plain[0]
    assert_same_bits(checked[1], plain[1])
    names = set(monitor.monitor.history)
    assert {f"norm.checksum{part}" for part in ("", "_dx", "_dw")} <= names
    assert any(name.startswith("norm") and "checksum" not in name for name in names)


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16], ids=str)
def test_the_operators_judge_norms_of_narrow_types(dtype):
    """MindSpore computes such norms in their own type."""
    ms.set_context(mode=ms.GRAPH_MODE)
    rng = np.random.default_rng(0)
    x, dy = (Tensor(rng.standard_normal((12, 32)).astype(np.float32)).astype(dtype) for _ in range(2))
    gamma, beta = (Tensor(rng.standard_normal(32).astype(np.float32)).astype(dtype) for _ in range(2))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm = NormASD(_by_hand, "hand", check=True)

        def construct(self, x, gamma, beta, dy):
            return (self.norm(x, gamma, beta) * dy).sum()

    def _by_hand(x, gamma, beta):
        x = x.astype(ms.float32)
        middle = x - x.mean(-1, keep_dims=True)
        y = middle * ops.rsqrt((middle * middle).mean(-1, keep_dims=True) + 1e-5)
        return (y * gamma.astype(ms.float32) + beta.astype(ms.float32)).astype(dtype)

    plan = Checksum(every=1)
    net = Net()
    plan.begin_step(1)
    ops.grad(net, (0, 1, 2))(x, gamma, beta, dy)
    table = slots.table()
    scores = {each.checkpoint: each.max_abs for each in table.read(net.norm.sites)}
    plan.stop()
    assert sorted(scores) == ["hand.checksum", "hand.checksum_dw", "hand.checksum_dx"]
    assert all(0 < score < 1 for score in scores.values())


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_norm_by_hand_without_a_mean_is_checked_in_groups_too(mode, factor):
    """RMSNorm over groups of channels, which no layer of MindSpore is."""

    def by_hand(x, gamma):
        grouped = x.reshape((x.shape[0], 2, -1))
        normal = grouped * (factor * ops.rsqrt((grouped * grouped).mean(-1, keep_dims=True) + 1e-6))
        return normal.reshape(x.shape) * gamma.reshape((1, -1, 1))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(Tensor(np.ones(4, np.float32)), name="weight")
            self.hand = NormASD(by_hand, "hand", groups=2, centred=False, epsilon=1e-6, shifted=False, check=True)

        def construct(self, x):
            return (self.hand(x.reshape((3, 4, 4)), self.weight) * x.reshape((3, 4, 4))).square().mean()

    config = Config(protection="document", enable=1, on_anomaly="log")
    monitor = StepMonitor(config, sinks=[], checksum=Checksum(every=1))
    trained(Net(), monitor)
    found = scores(monitor)
    assert sorted(found) == ["hand.checksum", "hand.checksum_dw", "hand.checksum_dx"]
    assert all((value > 1) is (factor != 1.0) for values in found.values() for value in values), found


@pytest.mark.parametrize("how", ["recomputed", "scaled", "compiled"])
def test_norms_are_checked_in_every_way_of_training(how, mode):
    """Recomputed activations, a loss scale, and a step that PyNative compiles; each as without the checks."""

    def gradients(net):
        if how == "recomputed":
            net.norm.recompute()
        scale = 1024.0 if how == "scaled" else 1.0

        def forward(x):
            return net(x) * scale

        step = ops.value_and_grad(forward, None, net.trainable_params())
        loss, found = (ms.jit(step) if how == "compiled" else step)(batch())
        return [each.asnumpy() for each in (loss, *found)]

    ms.set_context(mode=ms.PYNATIVE_MODE if how == "compiled" else ms.get_context("mode"))
    expected = gradients(fill(Block()))
    net = fill(Block())
    sites = [site for site in install_checksum(net) if "norm" in site.name]
    plan = Checksum(every=1)
    plan.begin_step(1)
    found = gradients(net)
    plan.stop()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    seen = {each.checkpoint: each.max_abs for each in slots.table().read(sites)}
    assert sorted(seen) == ["norm.checksum", "norm.checksum_dw", "norm.checksum_dx"]
    assert all(0 < score < 1 for score in seen.values())


def test_a_group_norm_with_a_method_of_its_own_stays_what_it_is():
    class Doubled(nn.GroupNorm):
        def _cal_output(self, x):
            return 2 * super()._cal_output(x)

    net = nn.SequentialCell(Doubled(2, 4))
    x = batch().reshape((3, 4, 2, 2))
    expected = net(x).asnumpy()
    assert install_checksum(net) == []
    np.testing.assert_array_equal(net(x).asnumpy(), expected)


def test_each_place_has_a_name_of_its_own_and_a_shared_operator_is_one_place(mode):
    class QKNorm(nn.Cell):
        def __init__(self, shared):
            super().__init__()
            self.q, self.k, self.matmul, self.shared = P.LayerNorm(-1, -1), P.LayerNorm(-1, -1), P.MatMul(), shared

    with enable():
        shared = P.LayerNorm(-1, -1)
    net = nn.CellList([QKNorm(shared), QKNorm(shared)])
    names = [site.name for site in install_checksum(net)]
    places = ["0.q", "0.k", "0", "0.shared", "1.q", "1.k", "1"]
    assert names == [f"{place}.checksum{part}" for place in places for part in ("", "_dx", "_dw")]
    assert [site.name for site in install_checksum(net)] == names


def test_a_layer_norm_over_other_axes_than_its_weights_have_is_left_alone():
    class Odd(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm = P.LayerNorm(1, 2)

    assert install_checksum(Odd()) == []


def test_a_norm_that_changes_the_type_is_refused_in_one_sentence(mode):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(Tensor(np.ones(8, np.float32)), name="weight")
            self.norm = NormASD(wider, "norm", centred=False, shifted=False, check=True)

        def construct(self, x):
            return self.norm(x, self.weight).sum()

    def wider(x, gamma):
        return x.astype(ms.float32) * gamma

    Checksum(every=1).begin_step(1)
    with pytest.raises(TypeError, match="type and shape of x"):
        Net()(batch().astype(ms.float16))
    Checksum(every=1).stop()


@pytest.mark.parametrize("rows", [1, 8])
def test_equal_gradients_that_are_all_rounded_alike_are_no_fault(mode, rows):
    """As behind a norm whose outputs are averaged over a sequence."""

    class Pooled(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm((16,))

        def construct(self, x):
            return (self.norm(x).mean(1) * Tensor(np.arange(16) - 7.3, ms.float32)).square().sum()

    net = fill(Pooled())
    sites = install_checksum(net)
    plan = Checksum(every=1)
    plan.begin_step(1)
    x = np.random.default_rng(0).standard_normal((rows, 2048 // rows, 16)).astype(np.float32)
    _, gradients = ops.value_and_grad(net, None, net.trainable_params())(Tensor(x))
    assert all(np.isfinite(gradient.asnumpy()).all() for gradient in gradients)
    plan.stop()
    readings = {each.checkpoint: each.max_abs for each in slots.table().read(sites)}
    assert readings["norm.checksum_dw"] < 0.7
    assert max(readings.values()) < 1

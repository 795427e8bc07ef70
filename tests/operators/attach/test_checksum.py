"""Checksums in a training: the same numbers as without, and the layer whose product is wrong."""

from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, batch, fill, trained
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812

from asd import AnomalyDetected, Config, ConfigError
from asd.operators import BatchMatMulASD, Checksum, MatMulASD, StepMonitor, install_checksum
from asd.operators.attach.recompute_schedule import RecomputeSchedule
from asd.operators.checks.matmul import ProductASD
from asd.operators.gate.part import StepRecord
from asd.operators.table import slots

pytestmark = pytest.mark.usefixtures("clean")


class Net(nn.Cell):
    """Shared inputs, residuals and every way to transpose; the output is the loss."""

    def __init__(self, matmul=None):
        super().__init__()
        self.shift = Parameter(Tensor(np.zeros(8, np.float32)), name="shift")
        self.first, self.second = nn.Dense(8, 8), nn.Dense(8, 8)
        self.norm = nn.LayerNorm((8,))
        self.weight = Parameter(Tensor(np.zeros((4, 8), np.float32)), name="weight")
        self.matmul, self.scores = matmul or P.MatMul(False, True), P.BatchMatMul(False, True)
        self.turned = P.MatMul(True, False)

    def construct(self, x):
        x = x + self.shift
        x = x + self.norm(self.first(x)) * self.second(x)
        y = self.matmul(x, self.weight)
        batch = x.reshape((2, 3, 8))
        return y.square().mean() + self.scores(batch, batch).square().mean() + self.turned(x, x).square().mean()


class _Wrong(nn.Cell):
    """A product with one element that is wrong, behind the operator and before the check."""

    def __init__(self, op, by):
        super().__init__(auto_prefix=False)
        self.op, self.by = op, by

    def construct(self, a, b):
        y = self.op(a, b)
        hit = ops.one_hot(Tensor([5], ms.int32), y.size, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        return y + hit.reshape(y.shape) * self.by

    def bare(self, a, b):
        """What PyNative calls where no check is due."""
        return self(a, b)


@pytest.mark.parametrize("every", [2, 5])
def test_a_training_whose_products_are_due_in_turn_is_the_same_bit_for_bit(mode, every):
    losses, weights = trained(Net(), steps=6)
    plan = Checksum(every=every)
    checked_losses, checked_weights = trained(
        Net(), monitor := StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=plan), steps=6
    )
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    assert any("checksum" in name for name in monitor.monitor.history)


def test_a_training_is_the_same_with_and_without_checksums_bit_for_bit(mode):
    losses, weights = trained(Net())
    checked_losses, checked_weights = trained(
        Net(), monitor := StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=Checksum(every=1))
    )
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    scores = {
        name: [value for _, value, *_ in seen] for name, seen in monitor.monitor.history.items() if "check" in name
    }
    assert sorted(scores) == sorted(
        f"{place}.checksum{part}"
        for place in ("first", "second", "norm", "Net", "scores", "turned")
        for part in ("", "_dx", "_dw")
    )
    assert all(len(seen) == 3 and 0 < max(seen) < 1 for seen in scores.values())


@pytest.mark.parametrize(
    ("part", "product"), [("", "multiply"), ("_dx", "multiply_dx"), ("_dw", "multiply_dw")], ids=["y", "dx", "dw"]
)
def test_a_wrong_product_is_named_and_its_update_refused(mode, part, product):
    net, monitor = Net(), StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=Checksum(every=1))

    def strike(net):
        parts = net.second.matmul.product.parts
        setattr(parts, product, _Wrong(getattr(parts, product), 0.01))

    with pytest.raises(AnomalyDetected) as caught:
        trained(net, monitor, before=strike)
    event = caught.value.event
    assert (event.checkpoint, event.step, event.rule, event.feature) == (
        f"second.checksum{part}",
        1,
        "checksum",
        "score",
    )
    assert event.refused
    assert event.limits == (1.0,)
    assert event.value > 1


def test_each_product_is_due_once_in_as_many_steps_as_asked_for(mode):
    monitor = StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=Checksum(every=4))
    trained(Net(), monitor, steps=8)
    seen = {name: [step for step, *_ in values] for name, values in monitor.monitor.history.items() if "check" in name}
    assert len(seen) == 18
    assert all(len(steps) == 2 and steps[1] - steps[0] == 4 for steps in seen.values())
    assert len({steps[0] for steps in seen.values()}) == 4


@pytest.mark.parametrize(("every", "expected"), [(0, 0), (1, 8), (4, 6)])
def test_in_pynative_a_product_is_the_bare_operator_where_none_of_its_three_is_due(every, expected):
    """Of four steps each of the three has one of its own."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    seen = []

    class Counted(nn.Cell):
        def construct(self, a, b, product, *slots):
            seen.append(product.shape)
            return product

    def count(net):
        net.second.matmul.product.parts.check = Counted()

    plan = Checksum(every=every)
    trained(Net(), StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=plan), steps=8, before=count)
    assert seen == [(6, 8)] * expected


def test_after_something_suspicious_all_products_are_due_for_a_while():
    checksum = Checksum(every=16, suspicious_steps=3)
    due = []
    for step in range(1, 8):
        checksum.begin_step(step, suspicious=step == 2)
        due.append(checksum.coverage)
    assert due == [1 / 16, 1, 1, 1, 1 / 16, 1 / 16, 1 / 16]
    checksum.stop()


@pytest.mark.parametrize(("confirm", "due"), [(0.0, 1.0), (0.01, 1 / 16)], ids=["without", "with a second look"])
def test_a_warning_makes_all_products_due_where_no_second_look_has_checked_them(confirm, due):
    checksum = Checksum()
    plan = RecomputeSchedule(Config(enable=1, confirm=confirm), checksum)
    plan.monitor = SimpleNamespace(judges=SimpleNamespace(scheme=SimpleNamespace(running=False)))
    plan.plan_next(StepRecord(1, None, 1.0, refused=False, events=["a warning"]))
    assert checksum.coverage == due
    plan.plan_next(StepRecord(2, None, 1.0, refused=True, events=["an error"], fatal="an error"))
    assert checksum.coverage == 1.0
    checksum.stop()


def test_on_demand_all_products_are_due():
    checksum = Checksum(every=16)
    due = []
    for step in range(41, 45):  # of a resumed training, perhaps on another device
        checksum.begin_step(step)
        due.append(checksum.coverage)
    assert due == [1 / 16] * 4
    checksum.make_all_due()
    assert checksum.coverage == 1
    checksum.begin_step(45)
    assert checksum.coverage == 1 / 16
    checksum.stop()


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16, ms.bfloat16], ids=str)
def test_the_operators_give_what_the_bare_ones_give_and_check_in_every_type(mode, enabled, dtype):
    x, w = (Tensor(np.random.default_rng(i).standard_normal((6, 8)), ms.float32).astype(dtype) for i in range(2))
    checked, bare = MatMulASD(transpose_b=True), P.MatMul(transpose_b=True)
    Checksum(every=1).begin_step(1)
    weight = Parameter(w, name="w")

    class One(nn.Cell):
        def __init__(self, op):
            super().__init__()
            self.op = op

        def construct(self, x, w):
            return self.op(x, w)

    def gradient(op):
        y, gradients = ms.value_and_grad(One(op), grad_position=(0, 1))(x, w)
        return [each.astype(ms.float32).asnumpy() for each in (y, *gradients)]

    y, dx, dw = gradient(checked)
    if dtype != ms.bfloat16:
        for ours, theirs in zip((y, dx, dw), gradient(bare), strict=True):
            assert ours.tobytes() == theirs.tobytes()
    wide = x.astype(ms.float32).asnumpy()
    np.testing.assert_allclose(dw, np.tile(wide.sum(0), (6, 1)), rtol=1e-2, atol=1e-2)
    found = {r.checkpoint.rpartition(".")[2]: r for r in slots.table().read(checked.sites)}
    assert sorted(found) == ["checksum", "checksum_dw", "checksum_dx"]
    assert all(reading.non_finite == 0 and reading.max_abs < 1 for reading in found.values())
    assert weight.dtype == dtype


def test_operands_with_other_leading_dimensions_are_multiplied_unchecked(enabled):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    op = BatchMatMulASD()
    op.op = lambda x, w: "the bare operator"
    assert op(Tensor(np.zeros((2, 3, 4), np.float32)), Tensor(np.zeros((1, 4, 5), np.float32))) == "the bare operator"


def test_an_operator_made_while_detection_is_off_does_not_check():
    op = MatMulASD(transpose_b=True)
    assert op.sites == []
    assert op.transpose_b
    assert op.add_prim_attr("primitive_target", "CPU") is op


def test_operators_in_a_network_are_named_after_their_place_and_checked_without_being_asked(enabled):
    net = Net(MatMulASD(False, True))
    monitor = StepMonitor(Config(protection="document", enable=1), sinks=[])
    trained(net, monitor, steps=16)
    assert sorted(name for name in monitor.monitor.history if "checksum" in name) == [
        "Net.checksum",
        "Net.checksum_dw",
        "Net.checksum_dx",
    ]


def test_layers_are_chosen_by_name_and_installed_once():
    net = Net()
    sites = install_checksum(net, include=("first", "second"), exclude="second")
    assert [site.name for site in sites] == ["first.checksum", "first.checksum_dx", "first.checksum_dw"]
    assert install_checksum(net, include="first") == sites
    assert isinstance(net.first.matmul, ProductASD)
    assert not isinstance(net.second.matmul, ProductASD)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": -1}, "every has the value -1"),
        ({"suspicious_steps": 1.5}, "suspicious_steps has the value 1.5"),
        ({"include": "("}, r"include has the value '\('"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Checksum(**arguments)


@pytest.mark.parametrize(
    ("rule", "tiers"),
    [("threshold", "checksum"), ("adaptive", "checksum"), ("adaptive", "finite+adaptive+state+ranks+checksum")],
)
def test_the_tier_switches_checksums_on_and_its_events_keep_the_name(mode, rule, tiers):
    config = Config.from_env(
        {"ASD_PROTECTION": "document", "NPU_ASD_ENABLE": "1", "ASD_RULE": rule, "ASD_OPTIONS": f"tiers:{tiers}"}
    )
    net, monitor = Net(), StepMonitor(config, sinks=[], loss_scale=1024.0)

    def strike(net):
        parts = net.second.matmul.product.parts
        parts.multiply = _Wrong(parts.multiply, 0.01)

    with pytest.raises(AnomalyDetected) as caught:
        trained(net, monitor, steps=16, before=strike)
    event = caught.value.event
    assert (event.checkpoint, event.rule, event.refused) == ("second.checksum", "checksum", True)
    assert event.value > 1


def test_without_the_tier_no_product_is_touched(clean):
    net = Net()
    trained(net, StepMonitor(Config(protection="document", enable=1), sinks=[]), steps=1)
    assert not isinstance(net.second.matmul, ProductASD)


class _WrongInStep(_Wrong):
    """Only in some calls; PyNative."""

    calls = 0

    def construct(self, a, b):
        self.calls += 1
        return super().construct(a, b) if self.calls in (2, 3)[: self.lasting] else self.op(a, b)


@pytest.mark.parametrize(("lasting", "verdict"), [(1, "transient"), (2, "undetermined")])
def test_a_wrong_product_is_judged_by_a_replay_of_its_step(clean, lasting, verdict):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net, events = Net(), []
    optimizer = nn.Momentum(fill(net).trainable_params(), 1e-4, 0.9)
    step = nn.TrainOneStepCell(net, optimizer)
    config = Config(protection="document", enable=1, on_anomaly="skip", replay=True, tiers=("checksum",))
    # Under this loss scale the score would look healthy, were it divided.
    monitor = StepMonitor(config, sinks=[events.append], checksum=Checksum(every=1), loss_scale=2.0**24)
    monitor.attach(step, optimizer)
    parts = net.second.matmul.product.parts
    parts.multiply = _WrongInStep(parts.multiply, 0.01)
    parts.multiply.lasting = lasting
    watched = monitor.watch_step(step)
    for number in range(3):
        monitor.step(watched(batch(number)))
    assert [(event.kind, event.rule, event.step) for event in events] == [
        ("anomaly", "checksum", 2),
        ("replay", "checksum", 2),
    ]
    assert events[1].verdict == verdict

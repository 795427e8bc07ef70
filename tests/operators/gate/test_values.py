"""The numbers in the slots are those of the true gradients, however the training is written."""

from functools import partial

import mindspore as ms
import numpy as np
import pytest
from checked_nets import (
    GRAPH,
    HIDDEN,
    NETS,
    STYLES,
    VOCABULARY,
    CalledTwice,
    Decoder,
    assert_reading,
    dataset,
    fill,
    gradients,
    ids,
    probe,
    readings,
    targets,
    truth,
)
from mindspore import Parameter, Tensor, amp, nn, ops
from mindspore.train import Model

from asd import Config
from asd.operators import StepMonitor, install
from asd.operators.gate import slots
from asd.operators.gate.statistics import SMALL, statistics
from asd.operators.gate.tap import make_tap
from tests.support.tables import quick

pytestmark = pytest.mark.usefixtures("clean")
ON = Config(protection="document", enable=1, on_anomaly="log")


def checked(make=Decoder, prepare=lambda net: net):
    net = prepare(fill(make()))
    install(net)
    return net


def sgd(net):
    return nn.SGD(net.trainable_params(), 1e-9)


def assert_all(found, *truths, **kwargs):
    assert sorted(found) == sorted(name.replace("_backbone.", "") for name in truths[0])
    for name in truths[0]:
        assert_reading(found[name.replace("_backbone.", "")], *[true[name] for true in truths], **kwargs)


IN_GRAPHS = ("decoder", "convolutions", "containers")


@pytest.mark.parametrize(
    ("name", "mode"),
    [*quick(1, [(name, "graph") for name in IN_GRAPHS]), *((name, "pynative") for name in NETS if name != "shared")],
    indirect=["mode"],
)
def test_every_checked_output_reports_its_true_gradient_in_float32(name, mode):
    make, make_input = NETS[name]
    net = checked(make)
    gradients(net, net.trainable_params(), make_input(1), targets(1))
    assert_all(readings(), truth(name, 1))


@pytest.mark.parametrize("style", STYLES)
def test_every_style_of_a_pynative_training_reports_the_true_gradient(style):
    net = checked()
    step = STYLES[style](net, sgd(net))
    for seed in range(2):
        step(ids(seed), targets(seed)).asnumpy()
        assert_all(readings(), truth("decoder", seed))


@pytest.mark.parametrize(
    ("level", "mode"), quick(2, [("O2", "pynative"), ("O3", "pynative"), ("O2", "graph")]), indirect=["mode"]
)
def test_float16_training_reports_the_true_gradient(level, mode):
    def prepare(net):
        return amp.auto_mixed_precision(net, level, ms.float16)

    net = checked(prepare=prepare)
    grad = ops.GradOperation(get_by_list=True, sens_param=True)(net, ms.ParameterTuple(net.trainable_params()))
    out = net(ids(), targets())
    scale = Tensor(64, out.dtype)
    grad(ids(), targets(), scale)[0].asnumpy()
    found = readings()
    bare = prepare(fill(Decoder()))
    zeros = probe(bare, ids(), targets())
    true = ops.GradOperation(get_by_list=True, sens_param=True)(bare, ms.ParameterTuple(zeros.values()))(
        ids(), targets(), scale
    )
    assert_all(found, dict(zip(zeros, [gradient.asnumpy() for gradient in true], strict=True)))


@GRAPH
def test_recompute_reports_the_true_gradient_once(mode):
    net = checked()
    for block in net.blocks:
        block.recompute()
    gradients(net, net.trainable_params(), ids(), targets())
    assert_all(readings(), truth("decoder"))


def test_of_several_micro_batches_in_one_compiled_step_the_worst_counts():
    net = checked()
    optimizer = sgd(net)
    grad = ms.value_and_grad(net, None, optimizer.parameters)
    add = ops.HyperMap()
    plus = ops.Add()

    @ms.jit
    def step(x0, y0, x1, y1, x2, y2):
        loss, total = grad(x0, y0)
        other, more = grad(x1, y1)
        total = add(plus, total, more)
        third, more = grad(x2, y2)
        total = add(plus, total, more)
        optimizer(total)
        return loss + other + third

    batches = [item for seed in range(3) for item in (ids(seed), targets(seed))]
    step(*batches).asnumpy()
    assert_all(readings(), *[truth("decoder", seed) for seed in range(3)])


def test_a_layer_called_twice_in_a_step_reports_the_worst_call(mode):
    net = checked(CalledTwice)
    gradients(net, net.trainable_params(), ids(), targets())
    bare = fill(CalledTwice(probed=True))
    for zero in (bare.z0, bare.z1):
        zero.set_data(ops.zeros_like(zero))
    true = gradients(bare, [bare.z0, bare.z1], ids(), targets())
    assert_reading(readings()["norm"], *true)


def history(monitor):
    return {name: [value for _, value, _, _ in values] for name, values in monitor.monitor.history.items()}


def assert_history(monitor, truths):
    found = history(monitor)
    assert sorted(found) == sorted(truths[0])
    for name, judged in found.items():
        expected = [np.linalg.norm(true[name].astype(np.float64).reshape(-1)) for true in truths]
        np.testing.assert_allclose(judged, expected, rtol=2e-6)


def test_model_train_judges_the_unscaled_values_of_every_step(graph):
    net = fill(Decoder())
    manager = ms.FixedLossScaleManager(256.0, drop_overflow_update=False)
    model = Model(net, optimizer=sgd(net), loss_scale_manager=manager)
    monitor = StepMonitor(ON, sinks=[])
    model.train(1, dataset(range(3)), callbacks=[monitor], dataset_sink_mode=False)
    assert_history(monitor, [truth("decoder", seed) for seed in range(3)])
    assert monitor.monitor.status.problems == 0


def test_a_dynamic_loss_scaler_is_followed_and_the_values_are_unscaled():
    net = fill(Decoder())
    optimizer = sgd(net)
    scaler = amp.DynamicLossScaler(scale_value=2.0**10, scale_factor=2, scale_window=1)
    monitor = StepMonitor(ON, sinks=[], loss_scale=scaler)
    monitor.attach(net, optimizer)

    def forward(x, y):
        return scaler.scale(net(x, y))

    grad = ms.value_and_grad(forward, None, optimizer.parameters)
    scales = []
    for seed in range(3):
        scales.append(float(scaler.scale_value.asnumpy()))
        loss, scaled = grad(ids(seed), targets(seed))
        found = scaler.unscale(scaled)
        finite = amp.all_finite(found)
        scaler.adjust(finite)
        optimizer(found)
        monitor.step(loss)
    assert scales == [2.0**10, 2.0**11, 2.0**12]
    assert_history(monitor, [truth("decoder", seed) for seed in range(3)])


def test_evaluation_checks_nothing_and_changes_no_state(mode):
    net = checked()
    before = slots.table().refused()
    net.set_train(False)
    for seed in range(2):
        net(ids(seed), targets(seed)).asnumpy()
    assert readings() == {}
    assert slots.table().refused() == before


class Tapped(nn.Cell):
    """One tap, and the gradient 2x at it."""

    def __init__(self, name):
        super().__init__()
        self.tap = make_tap(slots.table().new_site(name))

    def construct(self, x):
        return ops.square(self.tap(x))


class Casting(nn.Cell):
    """Only what MindSpore can compute in bfloat16 on a CPU: casts and products."""

    def __init__(self):
        super().__init__()
        self.tap = make_tap(slots.table().new_site("bfloat"))

    def construct(self, x):
        wide = ops.cast(self.tap(ops.cast(x, ms.bfloat16)), ms.float32)
        return wide * wide


@pytest.mark.parametrize("make", [partial(Tapped, "float"), Casting])
def test_a_gradient_is_read_though_its_squares_leave_the_range_of_float32(mode, make):
    net = make()
    gradient = ms.grad(net)
    for exponent in (0, -66, -110, 66, 110):
        x = np.array([[1.5, -3.0, 0.25]], np.float32) * np.float32(2.0**exponent)
        np.testing.assert_array_equal(gradient(Tensor(x)).asnumpy(), 2 * x)
        (found,) = readings().values()
        assert_reading(found, 2 * x)


@pytest.mark.parametrize(("elements", "expected"), [(SMALL, 2e-24 * SMALL**0.5), (SMALL + 1, 0.0)])
def test_of_a_tensor_that_is_not_small_the_smallest_squares_are_0(graph, elements, expected):
    ms.grad(Tapped("large"))(Tensor(np.full(elements, 1e-24, np.float32))).asnumpy()
    assert readings()["large"].value == pytest.approx(expected, rel=1e-5, abs=0)


def test_parameters_and_tensors_of_one_shape_are_read_together():
    some = [make(Tensor([size, -7.0 * size])) for size, make in ((1.0, Parameter), (2.0, ops.neg), (3.0, Parameter))]
    assert statistics(some, largest=True, alike=True).asnumpy().tolist() == [7.0, 14.0, 21.0]


class Reversed(nn.Cell):
    """Its layers are not called in the order in which they are made."""

    def __init__(self, order):
        super().__init__()
        for name in order:
            setattr(self, name, nn.Embedding(VOCABULARY, HIDDEN) if name == "first" else nn.LayerNorm((HIDDEN,)))

    def construct(self, x, y):
        return ops.mean(ops.square(self.last(ops.tanh(self.middle(self.first(x)))) - y)) * 1e12


@pytest.mark.parametrize(
    "order", quick(1, [(("last", "middle", "first"),), (("first", "last", "middle"),), (("middle", "first", "last"),)])
)
def test_the_headline_is_the_place_that_a_wrong_gradient_reached_first(mode, order):
    net = fill(Reversed(order))
    step = nn.TrainOneStepCell(net, sgd(net))
    config = Config(protection="document", enable=1, on_anomaly="log", rule="adaptive")
    monitor = StepMonitor(config, sinks=[], loss_scale=1.0)  # else the factor is taken for one
    monitor.attach(step, step.optimizer)
    events = monitor.step(step(ids(), targets()))
    assert [event.checkpoint for event in events] == ["last", "middle", "first"]
    seen = [reading.checkpoint for reading in sorted(monitor.monitor.readings, key=lambda each: each.order)]
    assert seen[3:] == [weight.name for weight in reversed(net.trainable_params())]


def test_inputs_of_changing_shape_are_read_and_an_empty_one_is_no_check(mode):
    net = Tapped("changing")
    net.set_inputs(Tensor(shape=[None, HIDDEN], dtype=ms.float32))
    gradient = ms.grad(net)
    for rows in (2, 3, 0, 1):
        x = np.full((rows, HIDDEN), rows, np.float32)
        np.testing.assert_array_equal(gradient(Tensor(x)).asnumpy(), 2 * x)
        found = readings()
        if rows:
            assert_reading(found["changing"], 2 * x)
        else:
            assert found == {}

"""Which tensors of an optimizer the detector `state` reads, whatever the optimizer and whoever holds it."""

import math

import mindspore as ms
import numpy as np
import pytest
from checked_nets import fill, train_sunk
from mindspore import Tensor, nn
from mindspore.experimental import optim
from mindspore.train import Callback

from asd import Config, Level
from asd.operators import StepMonitor
from asd.operators.gate.guard import guard
from asd.operators.sensors.optimizer_state import OptimizerState
from asd.operators.sensors.optimizers import as_one
from asd.operators.sensors.state_reading import StateReading
from asd.rules.reading import Reading

pytestmark = pytest.mark.usefixtures("clean")

MOMENTS = {
    "Adam": (lambda weights: nn.Adam(weights, 1e-3), ["moment1", "moment2"]),
    "AdamWeightDecay": (lambda weights: nn.AdamWeightDecay(weights, 1e-3), ["adam_m", "adam_v"]),
    "AdaFactor": (nn.AdaFactor, ["exp_avg", "exp_avg_sq", "exp_avg_sq_col", "exp_avg_sq_row"]),
    "Momentum": (lambda weights: nn.Momentum(weights, 0.1, 0.9), ["moments"]),
    "SGD": (lambda weights: nn.SGD(weights, 0.1, 0.9), ["accum", "stat"]),
    "LARS": (lambda weights: nn.LARS(nn.Momentum(weights, 0.1, 0.9)), ["moments"]),
    "Lamb": (lambda weights: nn.Lamb(weights, 1e-3), ["lamb_m", "lamb_v"]),
    "RMSProp": (lambda weights: nn.RMSProp(weights, 0.1), ["mean_square", "moment"]),
    "Adagrad": (nn.Adagrad, ["accum"]),
    "FTRL": (nn.FTRL, ["linear", "moments"]),
    "Adadelta": (nn.Adadelta, ["accum", "accum_update"]),
    "Rprop": (nn.Rprop, ["prev", "step_size"]),
    "ASGD": (nn.ASGD, ["ax_"]),
    "experimental AdamW": (optim.AdamW, ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]),
    "experimental SGD": (lambda weights: optim.SGD(weights, lr=0.1), ["accum", "stat"]),
}


ADAM = 7.2706  # rates: 0.1 / sqrt(0.001 * (1 - 0.81 / 0.999))


class Held(nn.Cell):
    """A training cell of one's own, whose members get its names before theirs."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second


@pytest.mark.parametrize("held", ["alone", "held by a cell", "held before the network", "held by a cell in a cell"])
@pytest.mark.parametrize("name", MOMENTS)
def test_the_moments_are_found_whatever_names_stand_before_theirs(name, held):
    make, moments = MOMENTS[name]
    net = nn.SequentialCell(nn.Dense(4, 4), nn.LayerNorm((4,)))
    optimizer = make(net.trainable_params())
    if held != "alone":
        cell = Held(*((optimizer, net) if held == "held before the network" else (net, optimizer)))
        outer = nn.SequentialCell(cell) if held.endswith("in a cell") else cell  # noqa: F841 - it gives names
    state = OptimizerState(optimizer)
    assert (sorted(state.moments), state.unknown) == (moments, [])
    counts = {group.name: len(group.parameters) for group in state.groups}
    assert counts["weight"] == 4
    assert max(counts[moment] for moment in moments) >= 3  # AdaFactor has some of a matrix, some of the rest


@pytest.mark.parametrize(("name", "prefix", "squares"), [("Adan", "v", 0), ("Adam2", "v", 1), ("A", "adam_v", 1)])
def test_negative_second_moments_are_wrong_only_where_an_optimizer_is_known_to_keep_squares(name, prefix, squares):
    weights = nn.Dense(4, 4, has_bias=False).trainable_params()
    own = type(name, (nn.Optimizer,), {})(0.1, weights)
    own.kept = own.parameters.clone(prefix, init=-1)
    found = StateReading(OptimizerState(as_one([nn.Adam(weights, 1e-3), own], None))).read(1, 0.0)
    assert sum(value < 0 for values, _ in found.values() for value in values.values()) == squares


@pytest.mark.parametrize(
    ("name", "moments", "most"),
    [
        ("Adam", [{"max_moment1": 0.6}, {"max_moment2": 0.018}], 2e-3 * ADAM),
        ("experimental AdamW", [{"max_exp_avg": 0.6}, {"max_exp_avg_sq": 0.018}], 2e-3 * ADAM),
        ("Momentum", [{"max_moments": 18.0}], 0.2 * 33),
        ("SGD", [{"max_accum": 18.0}, {"max_stat": 18.0}], 0.2 * 33),
        ("Rprop", [{}, {}], math.inf),
        ("RMSProp", [{}, {}], 0.2 * math.sqrt(10)),  # whose `moment` is of steps, so that a rate is in it
        ("LARS", [{}], math.inf),
    ],
)
@pytest.mark.parametrize("calls", [[1, 1], [2]])
def test_a_moment_may_grow_by_the_gradients_of_its_own_weight_and_a_weight_move_by_rates(name, moments, most, calls):
    optimizer = guard(MOMENTS[name][0](nn.Dense(4, 4).trainable_params()), gradients=True)
    state = OptimizerState(optimizer)
    for updates in calls:
        state.note([Reading("weight", 3.0, kind="W")], updates)
    weight, bias, *grown = state.growth(0.5)
    assert weight == bias == {"max_weight": 0.5}
    assert grown[: 2 * len(moments) : 2] == [pytest.approx(each, rel=1e-4) for each in moments]
    assert not any(grown[1::2])  # nobody knows the gradients of the bias
    state.read_rate()
    state.largest[:] = 1.0
    most *= calls[-1]
    without = math.inf if name in ("Momentum", "SGD") else most  # its step follows a gradient that nobody knows
    assert [state.most(0), state.most(1)] == [pytest.approx(each, rel=1e-4) for each in (most, without)]


class KeepingAdam(nn.Adam):
    """It keeps averages of weights, which it puts into them now and then; or weights in float32, as mindformers'."""

    def __init__(self, weights, more):
        super().__init__(weights, 1e-3)
        self.more = self.parameters.clone(more, init="zeros")


@pytest.mark.parametrize(
    ("more", "growth", "most"), [("average", {}, math.inf), ("main_param", {"max_main_param": 0.5}, 2e-3 * ADAM)]
)
def test_an_adam_that_keeps_more_than_moments_and_weights_may_change_a_weight_by_more(more, growth, most):
    state = OptimizerState(guard(KeepingAdam(nn.Dense(4, 4).trainable_params(), more), gradients=True))
    state.note([Reading("weight", 3.0, kind="W"), Reading("bias", 3.0, kind="W")], 1)
    found = dict(zip([each.name for each in state.parameters], state.growth(0.5), strict=True))
    assert (found["moment1.weight"], found[f"{more}.weight"]) == ({"max_moment1": pytest.approx(0.3)}, growth)
    state.read_rate()
    state.largest[:] = 0.0
    assert state.most(0) == pytest.approx(most, rel=1e-4)


def test_two_optimizers_of_weights_with_one_name_are_read_each_by_its_own_rates():
    nets = [nn.Dense(4, 4), nn.Dense(4, 4)]
    makes = (lambda weights: nn.Adam(weights, 1e-3, beta1=0.5), lambda weights: nn.Adam(weights, 1e-3, loss_scale=2.0))
    members = [guard(make(net.trainable_params()), gradients=True) for make, net in zip(makes, nets, strict=True)]
    state = OptimizerState(as_one(members, None))
    for number, site in enumerate(site for each in members for site in each.asd_gate.sites):
        site.name = f"{number}"  # as a monitor of both tells them apart
    state.note([Reading(f"{number}", 3.0, kind="W") for number in range(4)], 1)
    found = dict(zip([state.names[id(each)] for each in state.parameters], state.growth(0.5), strict=True))
    assert found["moment1.weight"] == {"max_moment1": pytest.approx(1.5)}
    assert found["moment1.weight (2)"] == {"max_moment1": pytest.approx(0.15)}
    state.read_rate()
    state.largest[:] = 0
    assert [state.most(i) for i in (0, 2)] == [pytest.approx(2e-3 * each, rel=1e-3) for each in (18.2635, ADAM)]


def test_no_gradients_make_an_adam_change_a_weight_by_more_than_its_bound():
    weight = ms.Parameter(Tensor(np.zeros(4, np.float32)), name="weight")
    optimizer, last = nn.AdamWeightDecay([weight], 1.0), 0.0
    size = 0.9 / 0.999  # of a gradient to the next one, so that the step is as large as it can be
    for step in range(1, 60):
        optimizer((Tensor(np.full(4, size**-step, np.float32)),))
        before, last = last, float(weight.asnumpy()[0])
    assert before - last == pytest.approx(ADAM, rel=1e-3)


@pytest.mark.parametrize(
    ("updates", "factor", "found"),
    [
        pytest.param(lambda step: 50, 1, [], id="fifty in each step"),  # as with sunk data
        pytest.param(lambda step: 1, 1, [], id="one in each step, of two trainings"),
        pytest.param(lambda step: step % 4 == 0, 1, [], id="one in four steps"),  # gradients add up in the others
        pytest.param(lambda step: step % 4 == 0, 100, [48], id="one in four steps, and a moment is damaged"),
    ],
)
def test_moments_are_judged_by_the_gradients_of_all_updates_that_a_step_makes(updates, factor, found, tmp_path):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = fill(nn.Dense(4, 4))
    optimizer = nn.Adam(net.trainable_params(), 1e-6)
    config = Config(enable=1, rule="adaptive", on_anomaly="log", run_dir=str(tmp_path))
    monitor = StepMonitor(config, sinks=[])
    monitor.attach(net, optimizer)
    events = []
    for step in range(1, 65):
        if step == 47 and updates(step) == 1:
            monitor.attach(net, optimizer)  # a second training
        for _ in range(updates(step)):
            optimizer(
                tuple(Tensor(np.full(each.shape, 1 + 2 * (step > 32), np.float32)) for each in optimizer.parameters)
            )
        events += monitor.step(Tensor(0.0))
        if step == 45:
            optimizer.moment2[0].set_data(optimizer.moment2[0] * factor)
    assert [each.step for each in events if each.level is Level.ERROR] == found


class Normalised:
    """A training whose gradients no size of the first layer's weights changes much."""

    def __init__(self, folder, statistics=1.0, first=0):
        net = self.net = fill(nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4), nn.Dense(4, 1)))
        net[1].moving_variance.set_data(Tensor(np.array([1, statistics, 1, 1], np.float32)))
        optimizer = nn.SGD(net.trainable_params(), 1e-3)
        optimizer.global_step.set_data(Tensor([first], ms.int32))
        self.cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
        self.events = []
        config = Config(protection="document", enable=1, rule="adaptive", on_anomaly="log", run_dir=str(folder))
        self.monitor = StepMonitor(config, sinks=[self.events.append])
        self.monitor.attach(self.cell, optimizer)

    def train(self, steps):
        x, y = Tensor(np.eye(8, 4, dtype=np.float32)), Tensor(np.zeros((8, 1), np.float32))
        for _ in range(steps):
            self.monitor.step(self.cell(x, y))
        return [(each.step, each.checkpoint) for each in self.events if each.level is Level.ERROR]


@pytest.mark.parametrize("first", [0, 15])  # steps before the monitor
def test_what_nobody_trains_may_be_infinite_from_the_start_which_is_told_and_not_become_so(first, tmp_path):
    training = Normalised(tmp_path, statistics=np.inf, first=first)
    assert training.train(16) == []
    statistic = training.net[1].moving_variance
    (told,) = [event.reason for event in training.events if "first step" in event.reason]
    assert told.endswith(f": {statistic.name}")
    statistic.set_data(Tensor(np.ones(4, np.float32)))
    assert training.train(16) == []
    statistic.set_data(Tensor(np.full(4, np.inf, np.float32)))
    assert [name for _, name in training.train(16)] == [statistic.name]


def test_state_is_judged_whenever_a_call_of_several_steps_passes_the_next_reading(graph, tmp_path):
    net = fill(nn.Dense(4, 4))
    optimizer, events = nn.Adam(net.trainable_params(), 1e-3), []
    config = Config(enable=1, rule="adaptive", on_anomaly="log", run_dir=str(tmp_path))
    monitor = StepMonitor(config, sinks=[events.append])

    class Damage(Callback):
        def on_train_step_end(self, run_context):
            if monitor.monitor.step == 25:
                optimizer.moment2[0].set_data(Tensor(np.full((4, 4), 1e6, np.float32)))

    rows = [(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)) for _ in range(40)]
    data = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False)
    train_sunk(nn.WithLossCell(net, nn.MSELoss()), optimizer, data, monitor, Damage(), steps=5)
    assert [each.step for each in events if each.level is Level.ERROR][:1] == [35]


@pytest.mark.parametrize(
    "load", [ms.load_param_into_net, lambda net, found: net.load_state_dict({**net.state_dict(), **found})]
)
def test_weights_that_a_user_loads_between_two_steps_are_no_anomaly_and_are_judged_from_then_on(load, tmp_path):
    training = Normalised(tmp_path)
    weight = training.net[0].weight
    training.train(19)
    load(training.net, {weight.name: ms.Parameter(weight * 20)})
    assert training.train(19) == []
    weight.set_data(weight * 20)
    assert training.train(10) == [(48, weight.name)]

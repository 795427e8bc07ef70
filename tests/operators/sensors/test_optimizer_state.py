"""Which tensors of an optimizer the detector `state` reads, whatever the optimizer and whoever holds it."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import SLOW, Decoder, fill, ids, targets
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim

from asd import Config, Level
from asd.operators import StepMonitor
from asd.operators.sensors.optimizer_state import OptimizerState
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


class Held(nn.Cell):
    """A training cell of one's own, whose members get its names before theirs."""

    def __init__(self, network, optimizer, *, optimizer_first=False):
        super().__init__()
        if optimizer_first:
            self.optimizer, self.network = optimizer, network
        else:
            self.network, self.optimizer = network, optimizer
        self.weights = optimizer.parameters
        self.gradient = ops.GradOperation(get_by_list=True, sens_param=False)

    def construct(self, *batch):
        loss = self.network(*batch)
        gradients = self.gradient(self.network, self.weights)(*batch)
        return ops.depend(loss, self.optimizer(gradients))


@pytest.mark.parametrize("held", ["alone", "held by a cell", "held before the network", "held by a cell in a cell"])
@pytest.mark.parametrize("name", MOMENTS)
def test_the_moments_are_found_whatever_names_stand_before_theirs(name, held):
    make, moments = MOMENTS[name]
    net = nn.SequentialCell(nn.Dense(4, 4), nn.LayerNorm((4,)))
    optimizer = make(net.trainable_params())
    if held != "alone":
        cell = Held(net, optimizer, optimizer_first=held == "held before the network")
        outer = nn.SequentialCell(cell) if held.endswith("in a cell") else cell  # noqa: F841 - it gives names
    state = OptimizerState(optimizer)
    assert (sorted(state.moments), state.unknown) == (moments, [])
    counts = {group.name: len(group.parameters) for group in state.groups}
    assert counts["weight"] == 4
    assert max(counts[moment] for moment in moments) >= 3  # AdaFactor has some of a matrix, some of the rest


def test_an_rprop_may_move_a_weight_by_its_step_size_as_that_can_grow():
    state = OptimizerState(nn.Rprop(nn.Dense(4, 4).trainable_params(), step_sizes=(1e-6, 0.7)))
    for _ in range(2):
        state.note([Reading("w", 1.0, kind="W")])
    grown = state.growth(0, 0.5)
    assert (grown["max_weight"], grown["max_step_size"]) == pytest.approx((0.6 + 0.7, 0.7))
    assert "max_weight" not in state.growth(0)


def test_what_an_optimizer_keeps_under_no_weights_name_is_told():
    class Own(nn.Optimizer):
        def __init__(self, weights):
            super().__init__(0.1, weights)
            self.running = Parameter(Tensor(np.zeros(7, np.float32)), name="running")
            self.hidden = [Tensor(np.zeros(weight.shape, np.float32)) for weight in weights]

        def construct(self, gradients):
            return gradients

    state = OptimizerState(Own(nn.Dense(4, 4).trainable_params()))
    assert (state.moments, state.unknown) == ([], ["running", "hidden"])


@pytest.mark.parametrize(
    ("held", "mode"), [(True, "graph"), pytest.param(False, "pynative", marks=SLOW)], indirect=["mode"]
)
def test_a_second_moment_gone_wrong_is_found_where_a_training_cell_holds_the_optimizer(mode, held, tmp_path):
    net = fill(Decoder())
    optimizer = nn.AdamWeightDecay(net.trainable_params(), 1e-3)
    cell = Held(net, optimizer) if held else nn.TrainOneStepCell(net, optimizer)
    cell.set_train()
    config = Config(protection="document", enable=1, rule="adaptive", on_anomaly="skip", run_dir=str(tmp_path))
    monitor = StepMonitor(config, sinks=[])
    monitor.attach(cell, optimizer)

    def events(step):
        loss = cell(ids(step), targets(step))
        return [event for event in monitor.step(loss) if event.level is Level.ERROR]

    assert [event for step in range(17) for event in events(step)] == []
    moment = next(each for each in optimizer.get_parameters() if each.name.endswith("adam_v.blocks.0.up.weight"))
    assert moment.name.startswith("optimizer.") is held
    moment.set_data(Tensor(np.full(moment.shape, 1e6, np.float32)))
    event = next(event for step in range(17, 33) for event in events(step))  # the state is read in each 16th step
    assert (event.checkpoint, event.refused) == (moment.name, False)
    assert "max_adam_v more than 16.7 times" in event.reason


class Normalised:
    """A training whose gradients no size of the first layer's weights changes much."""

    def __init__(self, folder, statistics=1.0):
        net = self.net = fill(nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4), nn.Dense(4, 1)))
        net[1].moving_variance.set_data(Tensor(np.array([1, statistics, 1, 1], np.float32)))
        optimizer = nn.SGD(net.trainable_params(), 1e-3)
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


def test_a_moving_statistic_that_is_not_finite_is_an_anomaly_though_nobody_trains_it(tmp_path):
    training = Normalised(tmp_path)
    assert training.train(19) == []
    statistic = training.net[1].moving_variance
    statistic.set_data(Tensor(np.array([1, np.inf, 1, 1], np.float32)))
    assert training.train(13) == [(32, statistic.name)]


def test_what_is_not_finite_when_a_training_begins_is_named_after_its_first_step(tmp_path):
    training = Normalised(tmp_path, statistics=np.inf)
    training.train(2)
    name = training.net[1].moving_variance.name
    (told,) = [event.reason for event in training.events if event.kind == "problem"]
    assert told.endswith(f": {name}")


def test_weights_that_a_user_loads_between_two_steps_are_no_anomaly_and_are_judged_from_then_on(tmp_path):
    training = Normalised(tmp_path)
    weight = training.net[0].weight
    training.train(19)
    ms.load_param_into_net(training.net, {weight.name: ms.Parameter(weight * 20)})
    assert training.train(19) == []
    weight.set_data(weight * 20)
    assert training.train(10) == [(48, weight.name)]

"""What a step changes is declared: it is put back before the step is made again, and nothing else is searched for."""

import random

import mindspore as ms
import numpy as np
import pytest
from checked_nets import Decoder, assert_same_bits, batch, dataset, fill, train_model, values
from mindspore import Tensor, amp, nn, ops

from asd import Config, ConfigError
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import FaultInjector
from asd.operators.table import slots

pytestmark = pytest.mark.usefixtures("clean")
STEPS, BAD = 9, 7
TO_CONFIRM = {"rule": "adaptive", "confirm": 0.01}
TO_ATTRIBUTE = {"rule": "threshold", "upper": (1000, 100), "replay": True}
UNDECLARED = "no step will be made again: what a step changes is not declared: give the step to StepMonitor.watch_step"


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.means, self.norm = nn.Dense(8, 8), nn.BatchNorm1d(8), nn.LayerNorm((8,))

    def construct(self, x):
        return ops.mean(ops.square(self.norm(self.means(self.first(x)))) * x)


class Training:
    """Nine steps under a loss scale that grows, with noise from NumPy and Python; they count themselves."""

    def __init__(self, purpose, *, fault="scale=1e6", declared=True, saves=True):
        np.random.seed(3)  # noqa: NPY002 - the generator that steps draw from
        random.seed(3)
        self.counts, self.runs, self.events = {"steps": 0}, 0, []
        self.net = fill(Net())
        self.optimizer = nn.Adam(self.net.trainable_params(), 1e-3)
        self.scaler = amp.DynamicLossScaler(scale_value=2.0**4, scale_factor=2, scale_window=3)
        self.monitor = StepMonitor(
            Config(protection="document", enable=1, on_anomaly="skip", **{"replay": False, "confirm": 0.0} | purpose),
            sinks=[self.events.append],
            loss_scale=self.scaler,
        )
        self.monitor.attach(self.net, self.optimizer)
        injector = FaultInjector(Fault.parse(f"gradient:norm:{fault}:step={BAD}"))
        injector.attach(self.net)
        self.gradients = ms.value_and_grad(self.forward, None, self.optimizer.parameters)
        step = self.step
        if declared:
            own = {"save": self.counts.copy, "restore": self.counts.update} if saves else {}
            step = self.monitor.watch_step(step, **own)
        for i in range(1, STEPS + 1):
            injector.begin_step()
            self.monitor.step(step(batch(i)))
        self.state = self.end()

    def forward(self, x):
        return self.scaler.scale(self.net(x))

    def step(self, x):
        self.runs += slots.table().replaying
        self.counts["steps"] += 1
        noise = np.random.normal(1, 0.1, (1, 8)) * random.uniform(0.9, 1.1)  # noqa: NPY002
        loss, gradients = self.gradients(x * Tensor(noise.astype(np.float32)))
        self.optimizer(self.scaler.unscale(gradients))
        self.scaler.adjust(Tensor(True))
        return loss

    def end(self):
        return {
            **values([*self.net.get_parameters(), *self.optimizer.get_parameters()]),
            "scale": self.scaler.scale_value.asnumpy(),
            "counter": self.scaler.counter.asnumpy(),
            "counts": np.array(self.counts["steps"]),
            "generators": np.array([np.random.random(), random.random()]),  # noqa: NPY002
        }


def test_a_step_that_is_made_again_to_confirm_ends_where_the_healthy_one_does(mode):
    healed, healthy = Training(TO_CONFIRM), Training(TO_CONFIRM, fault="scale=1")
    assert (healed.runs, healthy.runs) == (1, 0)
    assert [event.verdict for event in healed.events if event.kind == "replay"] == ["transient"]
    assert healthy.events == []
    assert_same_bits(healed.state, healthy.state)


def test_a_step_that_is_made_again_to_attribute_leaves_no_trace():
    made_again, refused = Training(TO_ATTRIBUTE, fault="scale=1e9"), Training({"upper": (1000, 100)}, fault="scale=1e9")
    assert (made_again.runs, refused.runs) == (2, 0)
    assert [event.verdict for event in made_again.events if event.kind == "replay"] == ["transient"]
    assert_same_bits(made_again.state, refused.state)


def test_what_is_not_declared_is_not_put_back():
    assert Training(TO_ATTRIBUTE, fault="scale=1e9", saves=False).counts["steps"] == STEPS + 2


def test_one_of_save_and_restore_alone_is_an_error():
    with pytest.raises(ConfigError, match="valid is both of save and restore, or none"):
        StepMonitor(Config(enable=1), sinks=[]).watch_step(lambda: None, save=dict)


def test_without_a_declaration_no_step_is_made_again_and_the_start_says_so(caplog):
    training = Training(TO_CONFIRM | {"replay": True}, declared=False)
    assert training.runs == 0
    missing = training.monitor.monitor.protections.missing
    assert missing["ASD_OPTIONS:confirm"] == missing["ASD_OPTIONS:replay"] == [UNDECLARED]
    assert UNDECLARED in caplog.text


class OwnCell(nn.TrainOneStepCell):
    """May change anything."""


@pytest.mark.parametrize(
    ("make", "declared", "repeats"),
    [(nn.TrainOneStepCell, False, True), (OwnCell, False, False), (OwnCell, True, True)],
)
def test_training_cells_of_mindspore_are_known_and_ones_of_the_user_have_to_be_declared(make, declared, repeats):
    net = fill(Decoder())
    cell = make(net, nn.SGD(net.trainable_params(), 1e-2)).set_train()
    monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly="skip", **TO_CONFIRM), sinks=[])
    if declared:
        monitor.watch_step(cell)
    train_model(cell, None, dataset(range(3)), monitor)
    assert monitor.monitor.protections.missing.get("ASD_OPTIONS:confirm", []) == ([] if repeats else [UNDECLARED])

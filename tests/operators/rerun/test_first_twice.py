"""The second step of a process is made twice: a device that wavers is told, and so is a training that never repeats."""

import logging

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, batch, fill, values
from mindspore import nn, ops

from asd import Config
from asd.operators import StepMonitor
from asd.operators.drill.inject import numpy_operator

pytestmark = pytest.mark.usefixtures("clean")


class Net(nn.Cell):
    """Calls `strike` on what its first layer gives."""

    def __init__(self, strike):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(8, 8), nn.LayerNorm((8,)), nn.Dense(8, 3)
        self.strike = _Struck(strike)

    def construct(self, x):
        return self.last(self.norm(self.strike(self.first(x))))


class _Struck(nn.Cell):
    def __init__(self, strike):
        super().__init__(auto_prefix=False)
        self.operator = numpy_operator(strike)

    def construct(self, x):
        return self.operator(x)

    def bprop(self, x, out, dout):
        return (dout,)


class Training:
    """Five steps; `strike` gets the number of the run of the step, of all that were made, and an array."""

    def __init__(self, strike=lambda run, array: array, **settings):
        self.runs, self.events, self.losses = 0, [], []
        net = fill(Net(lambda array: strike(self.runs, array)))
        optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
        config = Config(**{"enable": 1, "on_anomaly": "skip"} | settings)
        self.monitor = StepMonitor(config, sinks=[self.events.append])
        self.monitor.attach(net, optimizer)

        def forward(x):
            return ops.reduce_mean(net(x) ** 2)

        differentiate = ops.value_and_grad(forward, None, net.trainable_params())
        gradients = ms.jit(differentiate) if ms.get_context("mode") == ms.GRAPH_MODE else differentiate

        def run(x):
            self.runs += 1
            loss, grads = gradients(x)
            optimizer(grads)
            return loss

        step = self.monitor.watch_step(run)
        for i in range(5):
            loss = step(batch(i))
            self.monitor.step(loss)
            self.losses.append(loss.asnumpy().tobytes())
        self.on, self.missing = (getattr(self.monitor.monitor.protections, name) for name in ("on", "missing"))
        self.state = values([*net.get_parameters(), *optimizer.get_parameters()])


def twice(run, array):
    """A device that is wrong in the second run of all."""
    return array * np.float32(4) if run == 2 else array


def test_a_healthy_second_step_is_made_once_more_and_changes_nothing(mode):
    bare, checked = Training(confirm=0.0), Training()
    assert (bare.runs, checked.runs) == (5, 6)
    assert "repeats" not in bare.on
    assert checked.on["repeats"] == "bit for bit, as the second step showed"
    assert checked.events == bare.events == []
    assert checked.losses == bare.losses
    assert_same_bits(checked.state, bare.state)


def test_a_device_that_was_wrong_in_one_run_of_the_second_step_is_told(mode):
    healthy, struck = Training(), Training(twice)
    assert [(event.step, event.level.name, event.refused) for event in struck.events] == [(2, "WARNING", False)]
    assert "was not the same when it was made twice: " in struck.events[0].reason
    assert struck.events[0].value >= 4  # checkpoints behind the place
    assert struck.on["repeats"] == "bit for bit, but for the second step"
    assert struck.runs == 7
    assert struck.losses == healthy.losses  # the run without a trace was the wrong one
    assert_same_bits(struck.state, healthy.state)


@pytest.mark.parametrize("mode", ["graph"], indirect=True)
def test_a_training_that_never_repeats_a_step_takes_no_second_look(mode, caplog):
    with caplog.at_level(logging.WARNING, "asd"):
        noisy = Training(lambda run, array: array * np.float32(1 << run))
    assert noisy.runs == 7
    assert noisy.events == []
    (reason,) = noisy.missing["ASD_CONFIRM"]
    assert reason.startswith("no step will be made again: a step that is made twice does not say the same: ")
    assert reason in caplog.text
    assert "second look" not in noisy.on


@pytest.mark.parametrize("mode", ["graph"], indirect=True)
def test_rounding_that_differs_each_time_leaves_the_second_look_on(mode):
    noisy = Training(lambda run, array: array * np.float32(1 + run * 2**-20))
    assert noisy.events == []
    assert noisy.on["repeats"].startswith("not bit for bit: ")
    assert noisy.on["second look"]

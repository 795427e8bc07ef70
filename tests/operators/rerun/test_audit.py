"""A step made twice now and then: a device that gives other bits is named, a sound one and its training see nothing."""

import mindspore as ms
import pytest
from checked_nets import assert_same_bits, batch, fill, values
from mindspore import nn, ops

from asd import Config, Level
from asd.operators import StepMonitor
from asd.operators.rerun import audit, rerun

FIRST, EVERY = 10, 12


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """One step of twelve is made twice."""
    monkeypatch.setattr(audit, "EVERY", EVERY)
    monkeypatch.setattr(rerun, "EVERY", EVERY)
    monkeypatch.setattr(rerun, "FIRST", FIRST)


class Training:
    """Momentum in a training cell; in the runs of these numbers a factor spoils what the network is given."""

    def __init__(self, tmp_path, *bad, factor=1.5, declared=True, noise=False, **options):
        self.net = fill(nn.SequentialCell(nn.Dense(8, 16), nn.LayerNorm((16,)), nn.Dense(16, 4)))
        self.optimizer = nn.Momentum(self.net.trainable_params(), 1e-3, 0.9)
        config = Config(enable=1, on_anomaly="skip", run_dir=str(tmp_path), **options)
        self.monitor = StepMonitor(config, sinks=[])
        self.monitor.attach(self.net, self.optimizer)
        cell = nn.TrainOneStepCell(self.net, self.optimizer)
        self.calls = self.number = 0

        def run(given):
            self.calls += 1
            given = given + ops.standard_normal(given.shape) if noise else given
            return cell(given * factor if self.calls in bad else given)

        self._step = self.monitor.watch_step(run, audit=declared)
        self.cell = cell

    def step(self):
        given = batch(self.number)
        self.number += 1
        loss = self._step(given)
        return [event for event in self.monitor.step(loss) if event.level is Level.ERROR]

    def steps(self, count):
        found = [(self.step(), self.number) for _ in range(count)]
        return {number: events for events, number in found if events}

    @property
    def told(self):
        return self.monitor.monitor.protections.on.get("audit", "")


def test_a_step_that_comes_to_something_else_the_second_time_accuses_the_device(tmp_path, clean):
    second = EVERY + FIRST
    training = Training(tmp_path, second + 1, factor=1.05)  # one step was made twice before
    found = training.steps(second)
    assert list(found) == [second]
    (event,) = found[second]
    assert (event.rule, event.checkpoint, event.kind, event.refused) == ("audit", "step", "anomaly", False)
    assert event.reason.startswith("the same step came to something else when it was made twice: ")


def test_a_step_with_a_stream_that_can_not_be_put_back_is_not_audited_and_draws_what_it_would(tmp_path, clean):
    drawn = []
    for audited in (True, False):
        ms.set_seed(5)
        training = Training(tmp_path, noise=True, confirm=0.01 * audited, replay=audited)
        assert training.steps(EVERY) == {}
        drawn.append(values(training.net.get_parameters()))
        why = "not audited: the step draws random numbers that can't be drawn again (StandardNormal)"
        assert training.told == why * audited
    assert_same_bits(*drawn)


@pytest.mark.parametrize(
    ("bad", "factor"),
    [
        ((FIRST,), 1.5),  # it never did give the same twice
        ((EVERY + FIRST + 1,), 1 + 2.0**-20),  # a sum in another order is no fault
    ],
)
def test_what_does_not_give_the_same_bits_twice_is_audited_no_more_and_blames_nobody(tmp_path, clean, bad, factor):
    training = Training(tmp_path, *bad, factor=factor)
    assert training.steps(3 * EVERY) == {}
    assert training.calls - 3 * EVERY == (1 if bad == (FIRST,) else 2)
    assert training.told.startswith("not audited: the step does not give the same twice: ")


def test_a_step_of_python_s_is_audited_where_that_is_declared_alone(tmp_path, clean):
    training = Training(tmp_path, declared=False)
    assert training.steps(EVERY) == {}
    assert training.calls == EVERY
    assert training.told.startswith("not audited: Python runs in a step and may count it: declare that it does not, ")
    assert "audit" in training.monitor.monitor.status.protections["on"]


def test_a_training_cell_of_mindspore_is_audited_in_graph_mode(mode, tmp_path):
    training = Training(tmp_path)
    training._step = training.monitor.watch_step(training.cell)
    assert training.steps(EVERY) == {}
    assert training.told.startswith("one step of" if mode == "graph" else "not audited: Python runs in a step")

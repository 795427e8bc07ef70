"""A step made twice now and then: a device that gives other bits is named, a sound one and its training see nothing."""

import math
import time

import mindspore as ms
import pytest
import test_probe
from checked_nets import assert_same_bits, batch, fill, values
from mindspore import nn, ops

from asd import Config, Level
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.device_record import device_records
from asd.operators import StepMonitor
from asd.operators.rerun import audit, rerun
from asd.operators.rerun.audit import FIRST

EVERY = 12


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """One step of twelve is made twice."""
    monkeypatch.setattr(audit, "EVERY", EVERY)
    monkeypatch.setattr(rerun, "EVERY", EVERY)


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


def test_a_sound_step_is_made_twice_and_the_training_is_as_if_it_had_not(mode, tmp_path):
    ours = Training(tmp_path)
    assert ours.steps(2 * EVERY) == {}
    assert ours.calls == 2 * EVERY + 2
    plain = fill(nn.SequentialCell(nn.Dense(8, 16), nn.LayerNorm((16,)), nn.Dense(16, 4)))
    optimizer = nn.Momentum(plain.trainable_params(), 1e-3, 0.9)
    cell = nn.TrainOneStepCell(plain, optimizer)
    for number in range(2 * EVERY):
        cell(batch(number))
    assert_same_bits(values(ours.net.get_parameters()), values(plain.get_parameters()))
    assert_same_bits(values(ours.optimizer.get_parameters()), values(optimizer.get_parameters()))
    assert ours.told == f"one step of {EVERY} is made twice"


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


def test_where_one_rank_has_ended_its_audits_all_ranks_hear_of_it_and_none_waits(tmp_path, clean, monkeypatch):
    training = Training(tmp_path)
    assert training.steps(FIRST) == {}
    monitor = training.monitor._training.rerun.audit
    theirs = {"obstacle": "the step does not give the same twice: loss"}
    monkeypatch.setattr(monitor.ranks, "tell", lambda **own: [own, theirs])
    calls = training.calls
    monitor.make(training.monitor._training.rerun.again, "", FIRST, ())
    assert (training.calls, training.told) == (calls, f"not audited: {theirs['obstacle']}")
    asked = []
    monkeypatch.setattr(monitor.ranks, "tell", lambda **own: asked.append(own) or [own])
    monitor.make(training.monitor._training.rerun.again, "", FIRST, ())
    assert asked == [theirs]


def test_findings_of_checks_audit_and_probe_in_three_attempts_are_one_case_of_the_device_that_lists_them(
    monkeypatch, tmp_path, clean
):
    store = Store(None)
    handler = FaultHandler(store, Policy(settle_seconds=0), NoIsolator(store), [].append)

    def actions(training, steps):
        return [handler.handle(event).action for _ in range(steps) for event in training.step()]

    assert actions(Training(tmp_path / "first", 2, factor=math.inf), 2)[0] == "strike"
    assert actions(Training(tmp_path / "second", EVERY + FIRST + 1, factor=1.05), EVERY + FIRST) == ["strike"]
    test_probe.spoil(monkeypatch, "Exp", lambda found: found * 0)
    assert actions(test_probe.Training(tmp_path / "third"), 8 * test_probe.EVERY) == ["isolated"]
    (record,) = device_records(store, handler.policy, time.time())
    assert record.reason == (
        "it has 3 strikes within 480 minutes: adaptive at 2.weight, audit at step, probe at probe.Exp"
    )

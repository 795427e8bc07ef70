"""A step made twice now and then: a device that gives other bits is named, a sound one and its training see nothing."""

import time

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, batch, fill, values
from mindspore import Parameter, nn, ops

from asd import Config, Level
from asd.operators import StepMonitor
from asd.operators.rerun import audit, probe
from asd.rundir.manifest import load_manifest, manifest_path

FIRST, EVERY = 10, 12


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """One step of twelve is made twice."""
    monkeypatch.setattr(audit, "EVERY", EVERY)
    monkeypatch.setattr(audit, "FIRST", {"CPU": FIRST})


class Training:
    """Momentum in a training cell; in the runs of these numbers a factor spoils what the network is given."""

    def __init__(self, tmp_path, *bad, factor=1.5, declared=True, noise=False, shaken=0.0, **options):
        self.net = fill(nn.SequentialCell(nn.Dense(8, 16), nn.LayerNorm((16,)), nn.Dense(16, 4)))
        self.optimizer = nn.Momentum(self.net.trainable_params(), 1e-3, 0.9)
        config = Config(enable=1, on_anomaly="skip", run_dir=str(tmp_path), **options)
        self.monitor = StepMonitor(config, sinks=[])
        self.monitor.attach(self.net, self.optimizer)
        cell = nn.TrainOneStepCell(self.net, self.optimizer)
        self.calls = self.number = self.interrupted = 0

        def run(given):
            self.calls += 1
            if self.calls == self.interrupted:
                raise KeyboardInterrupt
            given = given + ops.standard_normal(given.shape) if noise else given
            given = given * (1 + shaken * (self.calls % 3))
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
        found = self.monitor.monitor.protections
        return f"off: {found.off['audit']}" if "audit" in found.off else found.on.get("audit", "")


def test_a_step_that_comes_to_something_else_the_second_time_accuses_the_device(tmp_path, clean):
    second = EVERY + FIRST
    training = Training(tmp_path, second + 1, factor=1.05)  # one step was made twice before
    found = training.steps(second)
    assert list(found) == [second]
    (event,) = found[second]
    assert (event.rule, event.checkpoint, event.kind, event.refused) == ("audit", "step", "anomaly", False)
    assert event.reason.startswith("two runs of the same step differ: ")


def test_a_step_with_a_stream_that_can_not_be_put_back_is_not_audited_and_draws_what_it_would(tmp_path, clean):
    drawn = []
    for audited in (True, False):
        ms.set_seed(5)
        training = Training(tmp_path, noise=True, confirm=0.01 * audited, replay=audited)
        assert training.steps(EVERY) == {}
        drawn.append(values(training.net.get_parameters()))
        assert ("StandardNormal" in training.told) is audited
    assert_same_bits(*drawn)


def test_a_cpu_makes_its_fiftieth_step_twice_and_none_before(tmp_path, clean, monkeypatch):
    monkeypatch.undo()
    training = Training(tmp_path)
    assert [(training.steps(1), training.calls)[1] for _ in range(50)] == [*range(1, 50), 51]


@pytest.mark.parametrize(
    ("bad", "audits", "told"),
    [
        ((FIRST, FIRST + EVERY + 1), 2, "off"),  # it never did give the same twice
        ((FIRST,), 3, "one step of 12 "),  # a fault in the first audit ends none
    ],
)
def test_what_never_gives_the_same_twice_is_audited_no_more_and_blames_nobody(tmp_path, clean, bad, audits, told):
    training = Training(tmp_path, *bad, confirm=0.0)
    assert training.steps(3 * EVERY) == {}
    assert training.calls - 3 * EVERY == audits
    assert training.told.startswith(told)


def test_where_last_bits_vary_audits_go_on_and_the_second_of_two_faults_is_told(tmp_path, clean):
    bad = [count * EVERY + FIRST + count + 1 for count in (2, 4, 5)]  # the first is one of the steps that are learned
    training = Training(tmp_path, *bad, factor=1.05, shaken=2.0**-22)
    assert list(training.steps(6 * EVERY)) == [5 * EVERY + FIRST]
    assert training.monitor.monitor.status.problems == 1
    assert 2.0**-24 < training.monitor._training.rerun.audit.spread.most < 2.0**-18
    assert " apart on this device" in training.told


def test_on_a_device_the_first_step_after_each_start_is_audited(mode, tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "FIRST", {})
    states = []
    for audited in (True, False):
        training = Training(tmp_path, confirm=0.01 * audited, replay=audited)
        training._step = training.monitor.watch_step(training.cell, audit=True)
        for number in (1, 2):
            training.steps(1)
            assert ("alike bit for bit" in training.told) is (audited and (mode == "graph" or number == 2))
        training.monitor.attach(training.net, training.optimizer)  # as where it is resumed
        training.steps(2)
        states.append(values(training.net.get_parameters()))
        assert ("alike bit for bit" in training.told) is audited
    assert_same_bits(*states)


def test_ranks_audit_the_same_first_step_where_only_one_holds_frozen_weights(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "FIRST", {})
    training = Training(tmp_path)
    training._step = training.monitor.watch_step(training.cell, audit=True)
    ranks, others = training.monitor._training.rerun.audit.ranks, [False, True]
    monkeypatch.setattr(ranks, "tell", lambda **own: [own, {**own, "waits": others.pop()}])
    for is_audited in (False, True):
        training.steps(1)
        assert ("alike bit for bit" in training.told) is is_audited


def test_what_an_interrupted_step_came_to_is_not_compared_with_the_next_one(tmp_path, clean):
    training = Training(tmp_path)
    training.steps(FIRST + EVERY - 1)
    training.interrupted = training.calls + 2  # the run that counts, after that of the audit
    with pytest.raises(KeyboardInterrupt):
        training.step()
    assert training.steps(3) == {}


def test_a_step_that_consists_of_several_declared_runs_is_not_audited_which_is_said(tmp_path, clean):
    training = Training(tmp_path)
    training.steps(FIRST - 1)
    training._step(batch(0))
    assert training.steps(EVERY) == {}
    assert training.told == "off: a step consists of several declared runs"


class Counting(nn.Cell):
    """Counts its steps in a Parameter that is not trained, beside frozen weights."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 4)
        self.count = Parameter(np.zeros(4, np.float32), name="count", requires_grad=False)
        self.frozen = Parameter(np.ones(300_000, np.float32), name="frozen", requires_grad=False)

    def construct(self, x):
        ops.assign_add(self.count, ops.ones_like(self.count))
        return self.dense(x) * self.frozen[:4]


def test_what_steps_write_beside_large_frozen_weights_is_written_once_by_an_audited_step(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "FIRST", {})
    net = fill(Counting())
    net.count.set_data(ops.zeros_like(net.count))
    optimizer = nn.Momentum(net.trainable_params(), 1e-3, 0.9)
    cell = nn.TrainOneStepCell(net, optimizer)
    monitor = StepMonitor(Config(enable=1, on_anomaly="skip", run_dir=str(tmp_path)), sinks=[])
    monitor.attach(cell, optimizer)
    step, before = monitor.watch_step(cell), net.count.asnumpy().copy()
    for number in range(1, 16):
        monitor.step(step(batch(number)))
        assert (net.count.asnumpy() - before).tolist() == [number] * 4
    assert {"replay", "audit"} <= set(monitor.monitor.protections.on)


@pytest.mark.parametrize("of_mindspore", [True, False])
def test_what_python_runs_is_audited_where_that_is_declared_alone(mode, of_mindspore, tmp_path):
    training = Training(tmp_path, declared=False)
    if of_mindspore:
        training._step = training.monitor.watch_step(training.cell)
    assert training.steps(EVERY) == {}
    audited = of_mindspore and mode == "graph"
    assert training.told.startswith("one step of" if audited else "off")
    assert of_mindspore or training.calls == EVERY


def test_saved_weights_are_verified_by_an_audit_and_known_answers_since_the_last_ones(tmp_path, clean, monkeypatch):
    monkeypatch.setattr(probe, "SHARE", 1e9)
    training, file, found = Training(tmp_path), tmp_path / "saved.ckpt", []
    for steps in (9, 90, 1):
        training.steps(steps)
        ms.save_checkpoint(training.net, str(file))
        training.monitor.save_manifest(file)
        found.append(load_manifest(manifest_path(file)).verified)
    assert found == [False, True, False]


def test_numbers_that_data_draw_while_a_step_runs_twice_are_not_drawn_again(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "EVERY", 1)
    drawn = []

    def rows():
        for _ in range(400):
            time.sleep(0.0005)
            drawn.append(np.random.normal())  # noqa: NPY002 - of the process, as users do
            yield (np.full(8, drawn[-1], np.float32), np.zeros(4, np.float32))

    net = fill(nn.SequentialCell(nn.Dense(8, 16), nn.LayerNorm((16,)), nn.Dense(16, 4)))
    ms.dataset.config.set_prefetch_size(512)
    data = ms.dataset.GeneratorDataset(rows, ["x", "y"]).batch(2)
    monitor = StepMonitor(Config(enable=1, run_dir=str(tmp_path)), sinks=[])
    model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 1e-3, 0.9))
    model.train(1, data, callbacks=[monitor], dataset_sink_mode=False)
    ms.dataset.config.set_prefetch_size(16)
    assert len(set(drawn)) == len(drawn)
    assert monitor.monitor.protections.on["audit"]

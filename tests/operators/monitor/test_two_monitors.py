"""Two trainings in one process, as of a GAN: each has its own gate, names, schedule and files."""

import functools
import json

import numpy as np
import pytest
from checked_nets import GRAPH, SLOW, assert_same_bits, batch, fill, values
from mindspore import Tensor, nn, ops

from asd import Config
from asd.exporters.run_files import status_file
from asd.injection import Fault
from asd.judge.status import Status
from asd.operators import StepMonitor, guard, install
from asd.operators.drill.inject import FaultInjector
from asd.operators.gate import slots
from asd.operators.start import autostart

pytestmark = pytest.mark.usefixtures("clean")
STEPS, BAD = 6, 4
RULE = Config(protection="document", enable=1, on_anomaly="skip", rule="threshold", upper=(1000, 100))


class Generator(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.n = nn.Dense(8, 8), nn.LayerNorm((8,))

    def construct(self, z):
        return self.n(self.dense(z))


class Discriminator(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.n, self.out = nn.Dense(8, 8), nn.LayerNorm((8,)), nn.Dense(8, 1)

    def construct(self, x):
        return self.out(self.n(self.dense(x)))


class LossOfGenerator(nn.Cell):
    def __init__(self, generator, discriminator):
        super().__init__(auto_prefix=False)
        self.generator, self.discriminator = generator, discriminator

    def construct(self, z):
        return ops.reduce_mean(ops.square(self.discriminator(self.generator(z)) - 1))


class LossOfDiscriminator(LossOfGenerator):
    def construct(self, x, z):
        fake = self.discriminator(ops.stop_gradient(self.generator(z)))
        return ops.reduce_mean(ops.square(self.discriminator(x) - 1)) + ops.reduce_mean(ops.square(fake))


class Gan:
    """Trains both in turn; a fault strikes the generator (`g`) or the discriminator (`d`) in one `turn`."""

    def __init__(self, config=None, *, fault=None, turn="", skipped="", order="dg", whole=False, joint=False):
        g, d = fill(Generator(), 7), fill(Discriminator())
        self.nets = {"g": g, "d": d}
        self.optimizers = {key: nn.Adam(net.trainable_params(), 1e-3) for key, net in self.nets.items()}
        losses = {"g": LossOfGenerator(g, d), "d": LossOfDiscriminator(g, d)}
        self.cells = {key: nn.TrainOneStepCell(losses[key], self.optimizers[key]).set_train() for key in "gd"}
        self.events, self.monitors, self.losses = {"g": [], "d": []}, {}, []
        for key in order if config is not None else "":
            monitor = self.monitors[key] = StepMonitor(config, sinks=[self.events[key].append], replay=False)
            monitor.attach(self.cells[key] if whole else self.nets[key], self.optimizers[key])
        self.injector = FaultInjector(Fault.parse(f"gradient:n$:set=1e9:step={BAD}"))
        if fault is not None:
            self.injector.attach(self.nets[fault])
        for step in range(1, STEPS + 1):
            for key in order:
                self.injector.begin_step(step if key == turn else 0)
                if not (step == BAD and key == skipped):
                    self.make(step, key)
                if self.monitors and not joint:
                    self.monitors[key].step()
            for monitor in self.monitors.values() if joint else ():
                monitor.step()

    def make(self, step, key):
        loss = self.cells[key](*([batch(step)] if key == "d" else []), batch(100 + step))
        self.losses.append((step, key, loss.asnumpy().tobytes()))

    def state(self):
        cells = [*self.nets.values(), *self.optimizers.values()]
        held = [values(cell.get_parameters()) for cell in cells]
        return {f"{i}.{name}": value for i, each in enumerate(held) for name, value in each.items()}


@functools.cache
def bare(_mode, **which):
    """Losses and state of the training without detection, made once in each mode."""
    gan = Gan(**which)
    return gan.losses, gan.state()


@pytest.mark.parametrize(
    ("fault", "turn", "mode"),
    [
        *(("d", "g", "graph"), ("g", "g", "pynative")),
        *(pytest.param(fault, turn, "pynative", marks=SLOW) for fault, turn in (("d", "g"), ("d", "d"))),
    ],
    indirect=["mode"],
)
def test_a_fault_is_refused_and_blamed_in_its_own_training_and_the_other_one_goes_on(fault, turn, mode):
    ours, (losses, state) = Gan(RULE, fault=fault, turn=turn), bare(mode, order="dg", skipped=turn)
    other = "d" if turn == "g" else "g"
    assert ours.events[other] == []
    assert {(event.step, event.level.name, event.refused) for event in ours.events[turn]} == {(BAD, "ERROR", True)}
    assert [each for each in ours.losses if each[:2] != (BAD, turn)] == losses
    assert_same_bits(ours.state(), state)
    refused = {key: monitor.monitor.status.refused for key, monitor in ours.monitors.items()}
    assert refused == {turn: 1, other: 0}


@pytest.mark.parametrize(("struck", "mode"), [("g", "graph"), ("d", "pynative")], indirect=["mode"])
def test_a_weight_that_memory_changes_between_two_steps_is_refused_by_each_training_that_reads_it(struck, mode):
    class Struck(Gan):
        def make(self, step, key):
            if (step, key) == (BAD, "d"):
                weight = self.nets[struck].dense.weight
                changed = weight.asnumpy().copy()
                changed[0] = 3.4e38
                weight.set_data(Tensor(changed))
                self.before = self.state()
            super().make(step, key)

    gan = Struck(RULE)
    for events in gan.events.values():
        found = {(event.step, event.level.name, event.refused) for event in events}
        assert found == {(step, "ERROR", True) for step in range(BAD, STEPS + 1)}
    assert_same_bits(gan.state(), gan.before)


@GRAPH
def test_training_cells_that_hold_both_networks_share_them_by_what_their_optimizers_train(mode):
    ours = Gan(RULE, fault="d", turn="g", order="gd", whole=True)
    assert ours.events["d"] == []
    assert {event.step for event in ours.events["g"]} == {BAD}
    assert_same_bits(ours.state(), bare(mode, order="gd", skipped="g")[1])
    sites = {key: {site.name for site in each._training.judging.gate.sites} for key, each in ours.monitors.items()}
    assert {name.split(".")[-2] for name in sites["g"]} == {"generator"}
    assert {name.split(".")[-2] for name in sites["d"]} == {"discriminator"}


@GRAPH
def test_detection_changes_no_number_in_a_healthy_gan_and_each_keeps_its_own_rule_state(mode, tmp_path):
    ours = Gan(Config(protection="document", enable=1, rule="adaptive", on_anomaly="skip"))
    losses, state = bare(mode)
    assert ours.losses == losses
    assert_same_bits(ours.state(), state)
    assert ours.events == {"g": [], "d": []}
    files = [ours.monitors[key].save_state(tmp_path / "gan.ckpt").name for key in "dg"]
    assert files == ["gan.ckpt.asd-rank0.json", "gan.ckpt.asd-rank0-Generator.json"]
    names = [set(json.loads((tmp_path / file).read_text())["checkpoints"]) for file in files]
    assert {"n", "Generator.n"} & names[0] == {"n"}
    assert {"n", "Generator.n"} & names[1] == {"Generator.n"}


def test_monitors_whose_steps_are_called_together_judge_both():
    ours = Gan(RULE, fault="g", turn="g", joint=True)
    assert ours.events["d"] == []
    assert {(event.step, event.refused) for event in ours.events["g"]} == {(BAD, True)}


def test_a_monitor_attached_to_the_optimizer_of_another_takes_its_place():
    net = fill(Discriminator())
    optimizer = nn.SGD(net.trainable_params(), 1e-3)
    first, second = (StepMonitor(RULE, sinks=[]) for _ in range(2))
    first.attach(net, optimizer)
    second.attach(net, optimizer)
    assert first._training.judging.gate.sites == []
    assert [site.name for site in second._training.judging.gate.sites] == ["n"]
    assert second._training.judging.gate.label == ""


def test_two_training_cells_under_asd_run_are_both_judged(monkeypatch, mode, tmp_path, autostarted):
    monkeypatch.setattr(status_file, "_INTERVAL_SECONDS", 0.0)
    gan = Gan()
    status = Status.from_json((tmp_path / "status-rank0.json").read_text())
    assert set(status.checkpoints) == {"generator.n", "discriminator.n"}
    assert status.checks >= 2
    autostart.stop()
    assert gan.losses == bare(mode)[0]


def test_two_cells_with_one_optimizer_keep_their_checks_in_turn(autostarted):
    pair = fill(nn.CellList([Discriminator(), Discriminator()]))
    optimizer = nn.SGD(pair.trainable_params(), 1e-3)
    for step, cell in enumerate([nn.TrainOneStepCell(each, optimizer).set_train() for each in pair] * 3):
        cell(batch(step))
    assert [len(each) for each in optimizer._asd_monitor.monitor.history.values()] == [3, 3]


def test_an_optimizer_guarded_by_hand_belongs_to_the_monitor_that_is_attached_first():
    net, other = fill(Discriminator()), fill(Generator())
    optimizers = [guard(nn.SGD(each.trainable_params(), 1e-3)) for each in (net, other)]
    install(net)
    monitor = StepMonitor(RULE, sinks=[])
    monitor.attach(net, optimizers[0])
    gate = monitor._training.judging.gate
    assert [optimizer.asd_gate.gate is gate for optimizer in optimizers] == [True, True]
    second = StepMonitor(RULE, sinks=[])
    second.attach(other, optimizers[1])
    assert optimizers[1].asd_gate.gate is second._training.judging.gate
    assert optimizers[0].asd_gate.gate is gate


def test_a_wrong_product_in_the_network_of_another_is_told_by_the_step_that_made_it():
    gan = Gan(RULE)
    table = slots.table()
    stray = table.new_site("dense.checksum", "checksum")
    judging = {key: monitor._training.judging for key, monitor in gan.monitors.items()}
    judging["d"].gate.take(stray)
    table.note([stray.slot], Tensor(np.float32([7.0])))
    gan.make(STEPS + 1, "g")
    events = gan.monitors["g"].step()
    assert [(event.checkpoint, event.level.name) for event in events] == [("dense.checksum", "ERROR")]
    gan.make(STEPS + 1, "d")
    assert gan.monitors["d"].step() == []

"""The line at the start of a training is true: what protects it, and what was asked for and does not."""

import json
import logging
import re

import mindspore as ms
import numpy as np
import pytest
from checked_nets import HIDDEN, Decoder, dataset, fill, ids, targets, train_model
from mindspore import Parameter, Tensor, amp, nn, ops

from asd import Config
from asd.cli import main
from asd.operators import StepMonitor

pytestmark = pytest.mark.usefixtures("clean")
ALL = ("state", "checksum")


class Plain(nn.Cell):
    """Nothing that is checked by itself."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones((HIDDEN,), np.float32)), name="weight")

    def construct(self, x, y):
        return ops.mean(ops.square(ops.reduce_sum(x).astype(ms.float32) * self.weight - y))


class Bare(nn.Optimizer):
    """Keeps nothing but the weights, or what it keeps under names that nobody knows."""

    def __init__(self, weights, *, hidden=False):
        super().__init__(1e-3, weights)
        if hidden:
            self.running = Parameter(Tensor(np.zeros(7, np.float32)), name="running")
            self.moments = [Tensor(np.zeros(weight.shape, np.float32)) for weight in weights]

    def construct(self, gradients):
        done = ()
        for weight, gradient in zip(self.parameters, gradients):  # noqa: B905 - the compiler knows no strict
            done = (*done, ops.assign_sub(weight, 1e-3 * gradient))
        return done


def train(config, *, net=None, make=lambda weights: nn.Adam(weights, 1e-3), watches=True, guards=True, steps=2):
    """The lines of the log, and what the status says in the end."""
    net = fill(net or Decoder())
    optimizer = make(net.trainable_params())
    step = nn.TrainOneStepCell(net, optimizer)
    monitor = StepMonitor(config, sinks=[])
    monitor.attach(step, optimizer if guards else None)
    run = monitor.watch_step(step) if watches else step
    for i in range(steps):
        monitor.step(run(ids(i), targets(i)))
    return monitor.monitor.status.protections


@pytest.fixture
def said(caplog):
    """What the log says, by level."""
    caplog.set_level(logging.INFO, logger="asd")

    def lines(level):
        found = [each.getMessage() for each in caplog.records if each.levelno == level and each.name == "asd"]
        return [line for line in found if "detector problem" not in line]

    return lines


def test_a_training_that_has_all_that_was_asked_for_says_so_in_one_line(mode, said):
    detectors = ALL if mode == "pynative" else ("state",)  # results are sampled in PyNative only
    config = Config(protection="document", enable=1, rule="adaptive", detectors=detectors, confirm=0.01, replay=True)
    found = train(config, make=lambda weights: nn.Adam(weights, [1e-3, 1e-3]))  # rates are a tensor of the optimizer
    assert said(logging.WARNING) == []
    (line,) = said(logging.INFO)
    assert {words: found["places"][words] for words in ("gradients of activations", "gradients of parameters")} == {
        "gradients of activations": 4,
        "gradients of parameters": 15,
    }
    assert found["missing"] == {}
    assert set(found["on"]) >= {"rule", "refusal", "state", "memory", "second look", "replay"}
    assert found["on"]["state"] == "bounds on each weight, moment1, moment2, and on what updates change"
    assert all(words in line for words in found["on"].values())


HALVES = {
    "casts": lambda: Decoder().to_float(ms.float16),
    "weights": lambda: nn.Dense(8, 8, dtype=ms.float16),
    "written": lambda: amp.auto_mixed_precision(nn.SequentialCell(nn.Dense(8, 8), nn.Dense(8, 1)), "O1", ms.float16),
}


@pytest.mark.parametrize("halves", HALVES)
@pytest.mark.parametrize("refuses", [True, False])
def test_half_precision_is_told_to_round_elsewhere_beside_a_gate(refuses, halves, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MindSpore writes the code
    halves = HALVES[halves]()
    monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly="skip" if refuses else "log"), sinks=[])
    monitor.attach(halves, nn.Adam(halves.trainable_params(), 1e-3))
    assert ("rounding" in monitor.monitor.protections.on) is refuses


def test_an_optimizer_that_was_not_given_and_is_not_guarded_is_told(said):
    found = train(Config(protection="document", enable=1, rule="adaptive", confirm=0.01), guards=False)
    missing = {name: len(reasons) for name, reasons in found["missing"].items()}
    ones = ("ASD_RULE=adaptive", "ASD_OPTIONS=detectors:state", "ASD_OPTIONS:confirm")
    assert missing == {"ASD_ON_ANOMALY": 2, **dict.fromkeys(ones, 1)}
    assert "Adam (optimizer) is not guarded" in found["missing"]["ASD_ON_ANOMALY"][1]
    assert "refusal" not in found["on"]


def test_a_second_optimizer_of_the_training_cell_is_told_and_no_step_is_re_run(said):
    net = fill(Decoder())
    step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 1e-3))
    step.other = nn.SGD(net.trainable_params(), 1e-3)
    monitor = StepMonitor(Config(protection="document", enable=1, rule="adaptive", confirm=0.01), sinks=[])
    monitor.attach(step, step.optimizer)
    monitor.step(monitor.watch_step(step)(ids(0), targets(0)))
    missing = monitor.monitor.status.protections["missing"]
    assert all("SGD" in missing[name][-1] for name in ("ASD_ON_ANOMALY", "ASD_OPTIONS:confirm"))


@pytest.mark.parametrize("hidden", [False, True])
def test_moments_that_were_not_found_are_told(said, hidden):
    found = train(
        Config(protection="document", enable=1, rule="adaptive", detectors=("state",)),
        make=lambda weights: Bare(weights, hidden=hidden),
    )
    assert "no moments" in found["on"]["state"]
    told = {(name, reason.partition(": ")[2]) for name, reasons in found["missing"].items() for reason in reasons}
    assert told == ({("ASD_OPTIONS=detectors:state", "running, moments")} if hidden else set())


class Unused(Decoder):
    def __init__(self):
        super().__init__()
        self.spare = nn.LayerNorm((HIDDEN,))


def test_a_place_that_the_first_step_does_not_reach_is_told(said):
    found = train(Config(protection="document", enable=1, rule="adaptive"), net=Unused())
    assert found["missing"] == {}
    assert found["unseen"] == {"gradients of activations": ["spare"]}
    assert any("1 of 5 gradients of activations: spare" in line for line in said(logging.INFO))
    assert said(logging.WARNING) == []


@pytest.mark.parametrize("protection", ["document", "full"])
def test_where_nothing_is_checked_it_never_looks_protected(protection, said):
    found = train(Config(protection=protection, enable=1), net=Plain())
    is_checked = protection == "full"  # gradients of parameters
    assert found["places"] == ({"gradients of parameters": 1, "calls made twice": 1} if is_checked else {})
    assert len(found["missing"].get("NPU_ASD_ENABLE", [])) == (0 if is_checked else 2)  # none to check, and none seen
    assert is_checked or said(logging.INFO) == []
    assert bool(said(logging.WARNING)) is not is_checked


def test_the_command_line_tells_it_from_the_status_file(graph, tmp_path, capsys):
    assert main(["env", "--training", "--run-dir", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    net = fill(Decoder())
    config = Config(protection="document", enable=1, rule="adaptive", detectors=("checksum",), run_dir=str(tmp_path))
    train_model(net, nn.Adam(net.trainable_params(), 1e-3), dataset(range(3)), StepMonitor(config))
    assert main(["env", "--training", "--run-dir", str(tmp_path)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert (head[:21], {*re.findall("detectors:([a-z+]*)", str(rows))}) == ("rank 0 on CPU:0, run ", {"state+checksum"})
    states = {name: state for name, state, *_ in (re.split("  +", row) for row in rows)}
    assert states.items() >= {"checked tensors": "on", "sampled results": "missing", "replay": "off"}.items()
    assert len(states) == len(rows) > 12  # one row a protection
    assert main(["env", "--training", "--json", "--run-dir", str(tmp_path)]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["training"]
    assert (rank["rank"], rank["active"], rank["protections"]["places"]["gradients of parameters"]) == (0, False, 15)

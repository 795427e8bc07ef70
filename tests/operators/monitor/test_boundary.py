"""An exception in our own code, wherever MindSpore calls us, is a problem and ends no training."""

import logging
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import mindspore as ms
import numpy as np
import pytest
from checked_nets import SLOW, Decoder, assert_same_bits, dataset, fill, state_of, train_model
from mindspore import Tensor, nn, ops
from mindspore.train import CheckpointConfig, ModelCheckpoint

from asd import Config
from asd.operators import StepMonitor
from asd.operators.gate import tap
from asd.operators.gate.table import Table
from asd.operators.monitor.rule_state import RuleState
from asd.operators.monitor.step_reader import StepReader
from asd.operators.rerun.rerun import Rerun
from asd.operators.sensors.all_checks import Checks

STEPS = 3


def trained(folder, monitor=None):
    net = fill(Decoder())
    optimizer = nn.Momentum(net.trainable_params(), 1e-3, 0.9)
    saver = ModelCheckpoint("net", str(folder), CheckpointConfig(save_checkpoint_steps=1))
    train_model(net, optimizer, dataset(range(STEPS)), *([monitor] if monitor is not None else []), saver)
    assert len(list(folder.glob("*.ckpt"))) == STEPS
    return state_of(net, optimizer)


@cache
def bare(_mode):
    with TemporaryDirectory() as folder:
        return trained(Path(folder))


@pytest.mark.parametrize(
    ("mode", "place", "name"),
    [
        *(pytest.param("graph", *each, marks=SLOW) for each in ((Checks, "put_on"), (Checks, "put_around"))),
        pytest.param("graph", Table, "read", marks=SLOW),
        ("pynative", Table, "read"),
        ("pynative", StepReader, "judge"),
        ("pynative", StepReader, "write_limits"),
        ("pynative", Checks, "put_on"),
        ("pynative", Checks, "put_around"),
        ("pynative", Rerun, "remember"),
        ("pynative", RuleState, "save"),
        ("pynative", RuleState, "save_manifest"),
        ("pynative", tap, "statistics"),
        ("pynative", Table, "note"),
        ("pynative", Table, "misfits"),
    ],
    indirect=["mode"],
    ids=lambda each: each if isinstance(each, str) else each.__name__.rpartition(".")[2],
)
def test_a_failure_of_ours_is_a_problem_and_the_training_as_without(mode, place, name, tmp_path, monkeypatch, caplog):
    expected = bare(mode)
    failures = []

    def fails(*_args, **_kwargs):
        failures.append(name)
        raise ValueError(f"the fault in {name}")

    events = []
    monitor = StepMonitor(Config(enable=1, run_dir=str(tmp_path)), sinks=[events.append])
    with caplog.at_level(logging.ERROR, "asd"), monkeypatch.context() as patch:
        patch.setattr(place, name, fails)
        found = trained(tmp_path / "checked", monitor)
    assert failures
    assert_same_bits(found, expected)
    said = [*caplog.messages, *(event.reason for event in events if event.kind == "problem")]
    assert any(f"the fault in {name}" in reason for reason in said)
    assert np.isfinite(found["norm_out.gamma"]).all()


@pytest.mark.parametrize("place", ["before the update", "after the update"])
def test_an_error_of_the_training_is_raised_and_not_taken_for_ours(place, clean, ahead, tmp_path_factory, monkeypatch):
    net = nn.SequentialCell(nn.Dense(4, 4), nn.LayerNorm((4,)))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    monitor = StepMonitor(Config(enable=1, run_dir="run"))
    monitor.attach(net, optimizer)
    monkeypatch.chdir(tmp_path_factory.mktemp("evaluation"))  # which takes no file of the run along
    gradient = ms.value_and_grad(lambda x: ops.mean(ops.square(net(x))), None, optimizer.parameters)

    def wrong(*here):  # MindSpore raises it once, at the first read
        return ops.cholesky(Tensor(-np.eye(4, dtype=np.float32))) if here == (place, 2) else 0

    with pytest.raises(RuntimeError, match="Cholesky"):  # noqa: PT012 - in which line is the question
        for number in range(4):
            loss, gradients = gradient(Tensor(np.ones((2, 4), np.float32)))
            optimizer((gradients[0] + wrong("before the update", number), *gradients[1:]))
            wrong("after the update", number)
            monitor.step(loss)
    assert list(Path().iterdir()) == []


def test_a_monitor_is_made_where_the_working_folder_is_gone(clean, tmp_path, capfd):
    tmp_path.rmdir()
    for enable in (0, 1):
        StepMonitor(Config(enable=enable)).attach(nn.LayerNorm((4,)))
        assert ("sink status_file" in capfd.readouterr().err) == enable

"""An exception in our own code, wherever MindSpore calls us, is a problem and ends no training."""

import logging
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import mindspore as ms
import numpy as np
import pytest
from checked_nets import Decoder, assert_same_bits, fill, ids, targets, values
from mindspore import nn
from mindspore.train import CheckpointConfig, Model, ModelCheckpoint

from asd import Config
from asd.operators import StepMonitor
from asd.operators.attach.all_checks import Checks
from asd.operators.measure import tap
from asd.operators.rerun.rerun import Rerun
from asd.operators.step.rule_state import RuleState
from asd.operators.step.step_reader import StepReader
from asd.operators.table.table import Table

STEPS = 3


def trained(folder, monitor=None):
    net = fill(Decoder())
    optimizer = nn.Momentum(net.trainable_params(), 1e-3, 0.9)
    rows = [(ids(i).asnumpy(), targets(i).asnumpy()) for i in range(STEPS)]
    data = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False)
    saver = ModelCheckpoint("net", str(folder), CheckpointConfig(save_checkpoint_steps=1))
    callbacks = [*([monitor] if monitor is not None else []), saver]
    Model(net, optimizer=optimizer).train(1, data, callbacks=callbacks, dataset_sink_mode=False)
    assert len(list(folder.glob("*.ckpt"))) == STEPS
    return {**values(net.get_parameters()), **values(optimizer.get_parameters())}


@cache
def bare(_mode):
    with TemporaryDirectory() as folder:
        return trained(Path(folder))


IN_BOTH = [
    (Table, "read"),
    (StepReader, "judge"),
    (StepReader, "write_limits"),
    (Checks, "put_on"),
    (Checks, "put_around"),
    (Rerun, "remember"),
    (RuleState, "save"),
    (RuleState, "save_manifest"),
]
IN_PYNATIVE = [*IN_BOTH, (tap, "statistics"), (Table, "note"), (Table, "broken")]


@pytest.mark.parametrize(
    ("mode", "place", "name"),
    [*(("graph", *each) for each in IN_BOTH), *(("pynative", *each) for each in IN_PYNATIVE)],
    indirect=["mode"],
    ids=lambda each: each if isinstance(each, str) else each.__name__.rpartition(".")[2],
)
def test_a_failure_of_ours_is_a_problem_and_the_training_is_as_without(
    mode, place, name, tmp_path, monkeypatch, caplog
):
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
    said = [event.reason for event in events if event.kind == "problem"] + [
        each.getMessage() for each in caplog.records
    ]
    assert any(f"the fault in {name}" in reason for reason in said)
    assert np.isfinite(found["norm_out.gamma"]).all()

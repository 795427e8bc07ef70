"""A run that is compared with the check sums of a healthy one while it runs."""

import json
import logging

import mindspore as ms
import numpy as np
import pytest
from debugged_nets import Net, batches, dump_of
from mindspore import nn

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.errors import ConfigError
from asd.operators import PrecisionDebugger

pytestmark = pytest.mark.usefixtures("clean")

STEPS = 3


def trained(config, *, fault_at=None):
    """Three steps; before step `fault_at` one bit of a weight is flipped."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))
    debugger = PrecisionDebugger(DebuggerConfig.of(config))
    losses = []
    for number, batch in enumerate(batches(STEPS)):
        if number == fault_at:
            weight = net.branches.dense.weight
            values = weight.asnumpy().copy()
            values.view(np.int32).flat[3] ^= 1 << 22
            weight.set_data(ms.Tensor(values))
        debugger.start(net)
        losses.append(float(step(batch).asnumpy()).hex())
        debugger.stop()
        debugger.step()
    return losses


def test_only_what_differs_from_the_healthy_run_is_kept_and_the_first_is_named(tmp_path, caplog):
    healthy, again, faulty = tmp_path / "healthy", tmp_path / "again", tmp_path / "faulty"
    losses = trained({"task": "md5", "level": "L0", "dump_path": str(healthy)})
    against = {"task": "tensor", "level": "L0", "tensor": {"bench_path": str(healthy)}}
    with caplog.at_level(logging.WARNING, "asd"):
        assert trained({**against, "dump_path": str(again)}) == losses
    assert not again.exists()
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "asd"):
        assert trained({**against, "dump_path": str(faulty)}, fault_at=1)[0] == losses[0]
    assert "the first is Cell.branches.dense.Dense.forward.0, which is given something else." in caplog.text
    assert not (faulty / "step0").exists()
    data = dump_of(faulty, step=1)[0]["data"]
    assert f"step1: {len(data)} of 11 calls differ" in caplog.text
    assert "Cell.first.Dense.forward.0" not in data
    dense = data["Cell.branches.dense.Dense.forward.0"]
    assert sorted(dense["differs"]) == ["output.0", "parameters.weight"]
    assert "data_name" not in dense["input_args"][0]
    saved = np.load(faulty / "step1" / "rank0" / "dump_tensor_data" / dense["parameters"]["weight"]["data_name"])
    assert saved.shape == (8, 8)
    files = {path.name for path in faulty.rglob("step1/rank0/dump_tensor_data/*.npy")}
    assert "Cell.branches.dense.Dense.forward.0.input.0.npy" not in files


def test_diff_nums_limits_what_is_kept_and_not_what_is_counted(tmp_path, caplog):
    trained({"task": "md5", "level": "mix", "dump_path": str(tmp_path / "healthy"), "step": [0, 1]})
    inner = {"bench_path": str(tmp_path / "healthy"), "diff_nums": 1}
    with caplog.at_level(logging.WARNING, "asd"):
        trained({"task": "tensor", "level": "mix", "dump_path": str(tmp_path / "run"), "tensor": inner},
                fault_at=0)  # fmt: skip
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step0"]
    (entry,) = dump_of(tmp_path / "run")[0]["data"].items()
    assert entry[0] == "Primitive.matmul.MatMul.1.forward"
    assert entry[1]["differs"] == ["input_args.1", "output.0"]
    assert "step1: " in caplog.text
    assert "step 2, rank 0 is not compared: the healthy run" in caplog.text


def test_an_operator_that_errs_on_the_same_inputs_is_told_from_its_victims(tmp_path, caplog, monkeypatch):
    trained({"task": "md5", "level": "L1", "dump_path": str(tmp_path / "healthy"), "step": [0]})
    right = ms.ops.tanh

    def wrong(x):
        return right(x) + 1e-6

    monkeypatch.setattr(ms.ops, "tanh", wrong)
    config = {"task": "statistics", "level": "L1", "dump_path": str(tmp_path / "run"), "step": [0],
              "statistics": {"bench_path": str(tmp_path / "healthy")}}  # fmt: skip
    with caplog.at_level(logging.WARNING, "asd"):
        trained(config)
    assert "Functional.tanh.0.forward, which computes something else of the same inputs." in caplog.text
    assert not list((tmp_path / "run").rglob("*.npy"))


@pytest.mark.parametrize(("files", "sentence"), [
    ({}, "a dump.json, or a folder that holds one, is needed"),
    ({"dump.json": "{"}, "it is cut short"),
    ({"dump.json": json.dumps({"task": "statistics", "data": {}})}, "holds no check sums"),
])  # fmt: skip
def test_a_healthy_run_that_cant_be_read_is_told_and_training_goes_on(tmp_path, caplog, files, sentence):
    folder = tmp_path / "healthy" / "step0" / "rank0"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    inner = {"bench_path": str(tmp_path / "healthy")}
    config = {"task": "tensor", "level": "L0", "dump_path": str(tmp_path / "run"), "step": [0], "tensor": inner}
    with caplog.at_level(logging.WARNING, "asd"):
        trained(config)
    assert sentence in caplog.text
    assert not (tmp_path / "run").exists()


def test_the_folder_of_the_healthy_run_must_be_there_and_another_one(tmp_path):
    config = {"task": "tensor", "dump_path": str(tmp_path)}
    with pytest.raises(ConfigError, match="the folder of a healthy run's dump, and there must be one"):
        DebuggerConfig.of({**config, "tensor": {"bench_path": str(tmp_path / "none")}})
    with pytest.raises(ConfigError, match="another folder than dump_path"):
        DebuggerConfig.of({**config, "tensor": {"bench_path": f"{tmp_path}/."}})
    with pytest.raises(ConfigError, match="diff_nums .* or -1 for no limit"):
        DebuggerConfig.of({**config, "tensor": {"diff_nums": 0}})

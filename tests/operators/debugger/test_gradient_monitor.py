"""The gradient monitor in real trainings: the gradients that the optimizer got, and nothing changed."""

import csv
import json
import logging
import math

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.errors import ConfigError
from asd.operators import PrecisionDebugger, guard
from asd.operators.debugger import gradient_monitor
from asd.operators.debugger.gradient_monitor import GradientMonitor
from asd.operators.debugger.record.values import to_array
from asd.operators.gate import slots

STEPS = 3


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(4, 5), nn.Dense(5, 3)

    def construct(self, x):
        return self.second(self.first(x))


def batches():
    random = np.random.default_rng(0)
    return [Tensor(random.normal(size=shape), ms.float32) for _ in range(STEPS) for shape in ((6, 4), (6, 3))]


def prepared(options=None, *, guarded=False, **kwargs):
    """A step of training, and its optimizer."""
    ms.set_seed(1)
    net = Net()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    if options is not None:
        GradientMonitor(options).monitor(optimizer)
    if guarded:
        guard(optimizer, gradients=True)
    return net, optimizer, nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)


def train(options=None, **kwargs):
    """Losses, and the weights at the end."""
    net, _, step = prepared(options, **kwargs)
    data = batches()
    losses = [float(step(data[2 * i], data[2 * i + 1]).asnumpy()) for i in range(STEPS)]
    return losses, {each.name: each.asnumpy() for each in net.get_parameters()}


def rows(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row["param_name"]: row for row in csv.DictReader(file)}


def test_the_gradients_are_those_of_the_network_and_nothing_else_changes(clean, tmp_path):
    plain = train()
    watched = train(DebuggerConfig(tmp_path, "grad_probe", grad_level="L1"))
    assert watched[0] == plain[0]
    for name, weight in plain[1].items():
        assert weight.tobytes() == watched[1][name].tobytes()
    names = [name.format(step) for name in ("grad_summary_{}.csv", "step{}") for step in range(STEPS)]
    assert sorted(file.name for file in (tmp_path / "rank0").iterdir()) == names
    net, _, _ = prepared()
    x, y = batches()[:2]
    expected = ms.value_and_grad(nn.WithLossCell(net, nn.MSELoss()), None, net.trainable_params())(x, y)[1]
    table = rows(tmp_path / "rank0" / "grad_summary_0.csv")
    assert list(table) == [each.name for each in net.trainable_params()]
    for parameter, gradient in zip(net.trainable_params(), expected, strict=True):
        array, row = gradient.asnumpy(), table[parameter.name]
        np.testing.assert_array_equal(np.load(tmp_path / "rank0" / "step0" / f"{parameter.name}.npy"), array > 0)
        assert row["shape"] == str(array.shape)
        assert [float(row[key]) for key in ("max", "min")] == pytest.approx([array.max(), array.min()], rel=1e-6)
        assert float(row["norm"]) == pytest.approx(np.linalg.norm(array), rel=1e-6)


def test_graph_mode_records_where_python_calls_the_optimizer_which_is_said(graph, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "asd"):
        train(DebuggerConfig(tmp_path, "grad_probe"))
    assert not (tmp_path / "rank0").exists()
    assert len(caplog.messages) == 1
    optimizer = nn.SGD([Parameter(Tensor(np.ones(2, np.float32)), name="w")], 0.1)
    GradientMonitor(DebuggerConfig(tmp_path, "grad_probe")).monitor(optimizer)
    optimizer((Tensor(np.ones(2, np.float32)),))
    assert (tmp_path / "rank0" / "grad_summary_0.csv").exists()


def test_the_debugger_records_gradients_with_the_task_grad_probe(clean, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "grad_probe", "dump_path": str(tmp_path / "d")}))
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.monitor(optimizer)
    with pytest.raises(ConfigError, match="one monitor records one optimizer"):
        debugger.monitor(nn.SGD(net.trainable_params(), 0.1))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    debugger.start(net)
    step(*batches()[:2]).asnumpy()
    debugger.stop()
    debugger.step()
    assert sorted(file.name for file in (tmp_path / "d" / "rank0").iterdir()) == ["grad_summary_0.csv", "step0"]
    config.write_text(json.dumps({"task": "statistics", "dump_path": str(tmp_path / "e")}))
    with pytest.raises(ConfigError, match="grad_probe"):
        PrecisionDebugger(config_path=str(config)).monitor(optimizer)


def test_only_the_steps_and_parameters_that_are_asked_for_are_recorded(clean, tmp_path, monkeypatch):
    copied = []
    monkeypatch.setattr(gradient_monitor, "to_array", lambda gradient: to_array(copied.append(gradient) or gradient))
    probe = {"grad_level": "L0", "param_list": ["second.bias"]}
    train({"task": "grad_probe", "dump_path": str(tmp_path / "d"), "step": [1], "grad_probe": probe})
    assert [file.name for file in (tmp_path / "d" / "rank0").iterdir()] == ["grad_summary_1.csv"]
    assert list(rows(tmp_path / "d" / "rank0" / "grad_summary_1.csv")) == ["second.bias"]
    assert len(copied) == 1


def test_a_gradient_that_is_none_has_no_row_and_one_that_cannot_be_copied_ends_the_record_alone(clean, tmp_path):
    optimizer = nn.SGD([Parameter(Tensor(np.ones(2, np.float32)), name=name) for name in "ab"], 0.1)
    optimizer.construct = len  # as one of a program, which takes what it can
    GradientMonitor(DebuggerConfig(tmp_path, "grad_probe")).monitor(optimizer)
    assert [optimizer((Tensor([1.0, 2.0]), each)) for each in (None, "sparse", None)] == [2] * 3
    assert list(rows(tmp_path / "rank0" / "grad_summary_0.csv")) == ["a"]
    assert not (tmp_path / "rank0" / "grad_summary_2.csv").exists()


def test_an_update_that_the_guard_refuses_is_no_step(clean, tmp_path):
    net, _, step = prepared(DebuggerConfig(tmp_path, "grad_probe"), guarded=True)
    x, y = batches()[:2]
    table = slots.table()
    refused = table.refused()
    for limit in (math.inf, 1e-9, math.inf):
        table.read(table.sites())
        table.set_limits([(site, limit) for site in table.sites()], 1.0)
        table.arm(True)
        before = net.first.weight.asnumpy().copy()
        step(x, y).asnumpy()
        assert (net.first.weight.asnumpy() == before).all() == (limit == 1e-9)
    assert table.refused() == refused + 1
    assert sorted(file.name for file in (tmp_path / "rank0").glob("*.csv")) == [
        "grad_summary_0.csv",
        "grad_summary_1.csv",
    ]


def test_a_folder_that_cannot_be_written_is_found_before_the_first_step(clean, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        train(DebuggerConfig(tmp_path / "file", "grad_probe"))


def test_what_an_earlier_run_left_is_moved_aside(clean, tmp_path):
    train(DebuggerConfig(tmp_path, "grad_probe"))
    before = (tmp_path / "rank0" / "grad_summary_0.csv").read_bytes()
    train(DebuggerConfig(tmp_path, "grad_probe"))
    assert (tmp_path / "rank0.earlier1" / "grad_summary_0.csv").read_bytes() == before
    assert (tmp_path / "rank0" / "grad_summary_2.csv").is_file()


def test_what_cannot_be_monitored_is_refused(clean, tmp_path):
    monitor = GradientMonitor(DebuggerConfig(tmp_path, "grad_probe"))
    with pytest.raises(ConfigError, match="a list of parameters"):
        monitor.monitor(Net())
    _, optimizer, _ = prepared(DebuggerConfig(tmp_path, "grad_probe"))
    with pytest.raises(ConfigError, match="one monitor records one optimizer"):
        monitor.monitor(optimizer)
    with pytest.raises(ConfigError, match=r"before guard\(\)"):
        monitor.monitor(guard(nn.SGD(Net().trainable_params(), 0.1)))
    with pytest.raises(ConfigError, match="^param_list"):
        GradientMonitor(DebuggerConfig(tmp_path, "grad_probe", param_list=("x",))).monitor(
            nn.SGD(Net().trainable_params(), 0.1)
        )


def test_a_list_may_name_parameters_that_another_optimizer_has(clean, tmp_path, caplog):
    net = Net()
    known = net.trainable_params()[0].name
    with caplog.at_level(logging.WARNING, "asd"):
        GradientMonitor(DebuggerConfig(tmp_path, "grad_probe", param_list=(known, "x"))).monitor(
            nn.SGD(net.trainable_params(), 0.1)
        )
    assert [said.rpartition(": ")[2] for said in caplog.messages] == ["x."]

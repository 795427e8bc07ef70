"""The debugger changes nothing of a training, and what it records is what was computed."""

import json
import logging
from functools import cache
from unittest.mock import MagicMock

import mindspore as ms
import numpy as np
import pytest
from debugged_nets import Net, batches, dump_of, recorded, recording, trained
from mindspore import Tensor, nn

from asd.errors import ConfigError
from asd.operators import DumpConfig, PrecisionDebugger

pytestmark = pytest.mark.usefixtures("clean")

MODULES = ["Cell.model.Net", *(f"Cell.{each}" for each in ("first.Dense", "branches.Branches"))]
MODULES += ["Cell.branches.dense.Dense", "Cell.head.Dense"]


@cache
def bare():
    return trained()


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """What a training came to, and its dump at level L0 with tensors and check sums."""
    folder = tmp_path_factory.mktemp("dump")
    config = {"task": "md5", "md5": {"tensor_list": ["Cell"]}, "level": "L0", "dump_path": str(folder)}
    return trained(config), folder


def test_losses_and_weights_are_bit_equal_with_and_without_the_debugger(dumped):
    assert dumped[0] == bare()


def test_every_module_is_recorded_forward_and_backward(dumped):
    dump, stack, construct = dump_of(dumped[1])
    names = [f"{module}.{direction}.0" for module in MODULES for direction in ("forward", "backward")]
    assert set(names) <= set(dump["data"])
    assert set(stack) == {name for name in names if ".forward." in name}
    assert construct["Cell.branches.dense.Dense.backward.0"] == "Cell.branches.Branches.backward.0"
    assert construct["Cell.branches.Branches.forward.0"] == "Cell.model.Net.forward.0"
    assert construct["Cell.model.Net.forward.0"] is None
    assert list(dump["data"]["Cell.head.Dense.forward.0"]["parameters"]) == ["weight", "bias"]
    weight = dump["data"]["Cell.first.Dense.forward.0"]["input_args"][0]
    saved = np.load(dumped[1] / "step0" / "rank0" / "dump_tensor_data" / weight["data_name"])
    assert saved.tobytes() == batches(1)[0].asnumpy().tobytes()
    assert len(dump["data"]) == 13


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16])
def test_parameters_are_recorded_as_the_call_found_them_and_a_norm_still_updates_its_own(dtype, tmp_path):
    net = nn.SequentialCell(nn.Dense(8, 8), nn.BatchNorm1d(8, moving_mean_init="zeros")).to_float(dtype)
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.05)).set_train()
    with recording(net, tmp_path):
        step(batches(1)[0])
    found = dump_of(tmp_path)[0]["data"]["Cell.1.BatchNorm1d.forward.0"]["parameters"]["moving_mean"]
    assert (found["Max"], found["Min"]) == (0.0, 0.0)
    assert net[1].moving_mean.asnumpy().any()


def test_the_gradient_of_an_input_is_that_of_the_module_alone(tmp_path):
    x = Tensor(np.linspace(-1, 1, 6, dtype=np.float32))

    class Twice(nn.Cell):
        def construct(self, value):
            return value * value + value

    class Around(nn.Cell):
        def __init__(self):
            super().__init__()
            self.twice = Twice()

        def construct(self, value):
            value = value * 1.0
            return (self.twice(value) + 5.0 * value).sum()

    net = Around()
    with recording(net, tmp_path, task="tensor"):
        total = ms.grad(net)(x)
    gradients = {
        path.name.partition(".backward.")[2]: np.load(path)
        for path in (tmp_path / "step0" / "rank0" / "dump_tensor_data").glob("Cell.twice.*.backward.0.*")
    }
    assert gradients["0.output.0.npy"] == pytest.approx(2 * x.asnumpy() + 1)
    assert total.asnumpy() == pytest.approx(2 * x.asnumpy() + 6)
    for place in (0, 1):  # of value * value, one for each place
        name = f"Tensor.__mul__.1.backward.output.{place}.npy"
        product = np.load(tmp_path / "step0" / "rank0" / "dump_tensor_data" / name)
        assert product == pytest.approx(x.asnumpy())


def test_functions_operators_and_modules_are_recorded_together_in_pynative(tmp_path):
    config = {"task": "md5", "level": "mix", "dump_path": str(tmp_path), "step": [0]}
    assert trained(config) == bare()
    data, stack, construct = dump_of(tmp_path)
    data = data["data"]
    assert "Functional.tanh.0.backward" in data
    product = data["Primitive.matmul.MatMul.0.forward"]
    assert product["attributes"] == {"name": "MatMul", "transpose_a": False, "transpose_b": True}
    assert construct["Primitive.mul.Mul.0.forward"] == "Cell.branches.Branches.forward.0"
    assert "debugged_nets.py" in stack["Functional.tanh.0.forward"][0]
    assert not (tmp_path / "step1").exists()
    assert ms.ops.tanh.__module__.startswith("mindspore")
    assert "__add__" not in Tensor.__dict__


IN_SET = "x * (2 if x.ndim in {0, 8} else 3)"


@pytest.mark.parametrize("codes", [["[each(x) for each in (abs, abs)]"], [IN_SET, IN_SET.replace("0, 8", "8, 0")]])
def test_the_check_sum_of_a_modules_code_needs_no_constant_and_is_one_for_each_order_of_a_set(codes, tmp_path):
    sums = set()
    for folder, code in zip((tmp_path / "one", tmp_path / "other"), codes, strict=False):
        net = type("Net", (nn.Cell,), {"construct": eval(f"lambda self, x: {code}")})()
        with recording(net, folder, level="L0"):
            net(batches(1)[0])
        sums.add(dump_of(folder)[0]["data"]["Cell.model.Net.forward.0"]["attributes"]["construct"])
    assert len(sums) == 1


class Holds(nn.Cell):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def construct(self, x, number):
        return x + 1


class Mute:
    __str__ = None


@pytest.mark.parametrize("held", [{}, {Mute(): 1}])
def test_what_has_no_form_in_a_dump_ends_no_training(held, tmp_path, caplog):
    net = Holds(held)
    with caplog.at_level(logging.ERROR, "asd"), recording(net, tmp_path, task="statistics", level="L0"):
        net(batches(1)[0], np.complex64(1j))
    assert ["the training continues" in said for said in caplog.messages] == [True] * len(held)
    entry = dump_of(tmp_path)[0]["data"]["Cell.model.Holds.forward.0"]
    assert held or entry["input_args"][1] is None


@pytest.mark.parametrize("fails", ["the folder", "a copy of a gradient"])
def test_what_cant_be_recorded_is_told_once_and_training_goes_on(fails, tmp_path, caplog, monkeypatch):
    config = {"task": "tensor", "level": "L0", "dump_path": str(tmp_path / "dump"), "step": [0]}
    (tmp_path / "dump").mkdir()
    if fails == "the folder":
        (tmp_path / "dump" / "step0").write_text("")
    else:
        monkeypatch.setattr("asd.operators.debugger.hooks.gradients.to_array", lambda _: [][0])
    with caplog.at_level(logging.ERROR, "asd"):
        assert trained(config) == bare()
    assert [record.message.count("the training continues") for record in caplog.records] == [1]


def test_arguments_take_the_place_of_what_the_file_says(tmp_path, caplog):
    (tmp_path / "config.json").write_text(
        json.dumps({"task": "tensor", "level": "L1", "dump_path": "elsewhere", "rank": [3], "seed": 7})
    )
    with caplog.at_level(logging.WARNING, "asd"):
        config = PrecisionDebugger(
            config_path=tmp_path / "config.json", task="statistics", dump_path=tmp_path, level="L0", step=[2]
        ).config
    assert (config.task, config.level, config.dump_path, config.step) == ("statistics", "L0", tmp_path, {2})
    assert config.rank == {3}
    (said,) = caplog.messages
    assert "seed (seed_all()" in said
    assert PrecisionDebugger(task="tensor", dump_path=str(tmp_path)).config.task == "tensor"
    with pytest.raises(ConfigError, match="level"):
        PrecisionDebugger(config, level="L1")
    with pytest.raises(ConfigError, match="step in PrecisionDebugger"):
        PrecisionDebugger(step=5)


def test_a_dump_has_the_precision_that_later_functions_than_set_context_set_on_ascend(tmp_path, monkeypatch):
    conf = MagicMock(**{"get_instance.return_value.matmul_allow_hf32.return_value": "1"})
    context = MagicMock(get_context=lambda key: {"device_target": "Ascend", "ascend_config": {}}.get(key))
    monkeypatch.setattr("asd.operators.debugger.record.environment.context", context)
    monkeypatch.setattr(ms.device_context.ascend.op_precision, "AscendOpPrecisionConf", conf, raising=False)
    monkeypatch.setattr(ms.hal, "get_device_name", lambda _: "Ascend910B3")
    trained({"task": "statistics", "dump_path": str(tmp_path)}, steps=1)
    assert "'matmul_allow_hf32': '1'" in dump_of(tmp_path)[0]["environment"]


def test_dump_config_keeps_its_rules(tmp_path, monkeypatch):
    settings = DumpConfig(enable_dump_debug=True, dump_path=str(tmp_path), dump_debug_mode="all").settings()
    assert (settings.task, settings.check_mode, settings.overflow_nums) == ("overflow_check", "all", -1)
    with pytest.raises(ConfigError, match="existing folder"):
        DumpConfig(enable_dump_debug=True, dump_path=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="together with enable_dump"):
        DumpConfig(enable_dump=True, enable_dump_debug=True, dump_path=str(tmp_path))
    with pytest.raises(ConfigError, match="all, aicore_overflow, atomic_overflow"):
        DumpConfig(enable_dump_debug=True, dump_path=str(tmp_path), dump_debug_mode="aicore")
    monkeypatch.setattr("asd.operators.debugger.dump_config._is_atlas_a2", lambda: True)
    with pytest.raises(ConfigError, match="Atlas A2 supports only all"):
        DumpConfig(enable_dump_debug=True, dump_path=str(tmp_path), dump_debug_mode="atomic_overflow")


def test_in_graph_mode_nothing_is_recorded_and_one_sentence_says_what_to_do(graph, tmp_path, caplog):
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))
    debugger = PrecisionDebugger(task="statistics", level="mix", dump_path=tmp_path / "dump")
    with caplog.at_level(logging.WARNING, "asd"):
        losses = recorded(step, net, batches(2), debugger)
    assert len(losses) == 2
    assert not (tmp_path / "dump").exists()
    assert ["graph mode" in said for said in caplog.messages] == [True]


def test_dump_enable_switches_a_dump_on_and_off_while_the_training_runs(tmp_path, caplog):
    config, net = tmp_path / "config.json", Net()
    content = {"dump_enable": False, "dump_path": str(tmp_path / "dump")}
    config.write_text(json.dumps(content))
    debugger = PrecisionDebugger(config)
    for change in (False, True, None, False, "yes"):
        if change is not None:
            config.write_text(json.dumps({**content, "dump_enable": change}))
        debugger.start(net)
        net(batches(1)[0])
        debugger.step()
    assert sorted(path.name for path in (tmp_path / "dump").iterdir()) == ["step1", "step2"]
    assert "stay as they were: dump_enable" in caplog.text

"""Debugger and detection on one network in one process: both do their work and change nothing."""

import json

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from asd.config import Config
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger, StepMonitor, enable, install


class ScaledNorm(nn.LayerNorm):
    """A layer with a `super()` of its own, which the compiler has to understand whatever was put around the layer."""

    def construct(self, x):
        return super().construct(x) * 0.5


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = ScaledNorm((8,))
        self.dense = nn.Dense(8, 8)

    def construct(self, x):
        return x + self.dense(self.norm(x)) * 0.1


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(8, 8)
        self.block = Block()
        self.norm = nn.LayerNorm((8,))

    def construct(self, x):
        return (self.norm(self.block(self.first(x))) ** 2).mean(axis=0)[3]


def trained(debugger, detection):
    """Losses of two steps, and how often each checkpoint was judged."""
    ms.set_seed(1)
    net = Net()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    if debugger:
        debugger.start(net)
    step, monitor = nn.TrainOneStepCell(net, optimizer), None
    if detection == "monitor":
        monitor = StepMonitor(Config(protection="document", enable=2), sinks=[])
        monitor.attach(step, optimizer)
    losses = []
    draw = np.random.default_rng(5)
    for _ in range(2):
        if debugger:
            debugger.start(net)
        loss = step(Tensor(draw.standard_normal((4, 8)).astype(np.float32)))
        if debugger:
            debugger.stop()
            debugger.step()
        if monitor:
            monitor.step(loss)
        losses.append(float(loss.asnumpy()).hex())
    monitor = monitor or vars(step).get("_asd_monitor")
    judged = {name: len(values) for name, values in monitor.monitor.history.items()} if monitor else {}
    if monitor:
        monitor.close()
    return losses, judged


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The losses of a training without anything, and the last dump of one without detection."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    folder = tmp_path_factory.mktemp("alone")
    losses, _ = trained(None, None)
    assert trained(_debugger(folder), None)[0] == losses
    return losses, _data(folder)


def _debugger(folder):
    return PrecisionDebugger(DebuggerConfig.of({"task": "md5", "level": "mix", "dump_path": str(folder)}))


def _data(folder):
    return json.loads(max(folder.rglob("dump.json")).read_text())["data"]


@pytest.mark.parametrize("detection", ["monitor", "enable"])
def test_debugger_and_detection_on_one_network_both_do_their_work(clean, alone, detection, tmp_path, monkeypatch):
    losses, dump = alone
    names = ["block.norm", "norm"]
    if detection == "enable":
        monkeypatch.setenv("NPU_ASD_ENABLE", "1")
        names = ["block.norm.layer_norm", "norm.layer_norm"]
        enable()
    together, judged = trained(_debugger(tmp_path), detection)
    assert together == losses
    assert judged == dict.fromkeys(names, 2)
    assert _data(tmp_path) == dump


def test_a_layer_that_calls_its_parent_can_be_checked_in_a_compiled_graph(graph):
    draw = np.random.default_rng(1)
    batch = Tensor(draw.standard_normal((2, 8)).astype(np.float32))
    ms.set_seed(1)
    plain, checked = Block(), Block()
    ms.load_param_into_net(checked, plain.parameters_dict())
    assert install(checked).found == ["norm"]
    assert checked(batch).asnumpy().tobytes() == plain(batch).asnumpy().tobytes()

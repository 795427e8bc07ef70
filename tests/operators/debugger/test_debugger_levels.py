"""What each level records, and that a debugger records its own level where an earlier one had another."""

import mindspore as ms
import pytest
from debugged_nets import Net, batches, dump_of
from mindspore import nn

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger

pytestmark = pytest.mark.usefixtures("clean")


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_each_level_has_its_entries_after_a_debugger_of_another_level_too(mode, tmp_path):
    ms.set_context(mode={"graph": 0, "pynative": 1}[mode])
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))
    names, parents = {}, {}
    for level in ("mix", "L0", "L1"):
        folder = tmp_path / level
        debugger = PrecisionDebugger(DebuggerConfig.of({"task": "md5", "level": level, "dump_path": str(folder)}))
        debugger.start(net)
        step(batches(1)[0]).asnumpy()
        debugger.stop()
        dump, stack, construct = dump_of(folder)
        names[level], parents[level] = set(dump["data"]), construct
        assert set(stack) == {name for name in names[level] if "forward" in name}
    modules = {name for name in names["mix"] if name.startswith("Cell.")}
    assert len(modules) == 11
    assert names["L0"] == modules
    assert names["L1"] == names["mix"] - modules
    assert "Functional.tanh.0.forward" in names["L1"]
    assert parents["L1"] == {}
    assert parents["L0"]["Cell.branches.dense.Dense.forward.0"] == "Cell.branches.Branches.forward.0"

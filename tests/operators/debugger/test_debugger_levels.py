"""What each level and scope records, and that a debugger records its own level where an earlier one had another."""

import pytest
from debugged_nets import Net, batches, dump_of, recording
from mindspore import nn

pytestmark = pytest.mark.usefixtures("clean")


def test_each_level_has_its_entries_after_a_debugger_of_another_level_too(tmp_path):
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))
    names, parents = {}, {}
    for level in ("mix", "L0", "L1"):
        with recording(net, tmp_path / level, level=level):
            step(batches(1)[0]).asnumpy()
        dump, stack, construct = dump_of(tmp_path / level)
        names[level], parents[level] = set(dump["data"]), construct
        assert set(stack) == {name for name in names[level] if "forward" in name}
    modules = {name for name in names["mix"] if name.startswith("Cell.")}
    assert len(modules) == 13
    assert names["L0"] == modules
    assert names["L1"] == names["mix"] - modules
    assert "Functional.tanh.0.forward" in names["L1"]
    assert parents["L1"] == {}
    assert parents["L0"]["Cell.branches.dense.Dense.forward.0"] == "Cell.branches.Branches.forward.0"


FIRST, LAST = "Cell.first.Dense.{}.0", "Cell.branches.dense.Dense.{}.0"
FORWARD = [
    "Cell.first.Dense.forward.0",
    "Tensor.__mul__.0.forward",
    "Functional.tanh.0.forward",
    "Cell.branches.dense.Dense.forward.0",
]


def one_step(folder, **config):
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))
    with recording(net, folder, **config):
        step(batches(1)[0]).asnumpy()


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_scope_ends_with_its_last_entry(level, tmp_path):
    scope = [FIRST.format("forward"), LAST.format("forward")]
    one_step(tmp_path, task="tensor", level=level, tensor={"scope": scope})
    dump, stack, construct = dump_of(tmp_path)
    names = [name for name in dump["data"] if not name.startswith("Primitive.")]
    assert names == [name for name in FORWARD if level == "mix" or name in scope]
    # The product, the sum and the shape of either Dense.
    assert len(dump["data"]) == len(names) + (6 if level == "mix" else 0)
    assert set(stack) == set(construct) == set(dump["data"])
    files = {path.name for path in tmp_path.rglob("*.npy")}
    assert files
    assert all(name.startswith(tuple(dump["data"])) for name in files)


def test_a_scope_of_the_backward_pass_has_the_gradients_of_its_own_modules_parameters(tmp_path):
    scope = ["Cell.head.Dense.backward.0", LAST.format("backward")]
    one_step(tmp_path, level="L0", md5={"scope": scope})
    assert set(dump_of(tmp_path)[0]["data"]) == {
        *scope,
        "Cell.head.Dense.parameters_grad.0",
        "Cell.branches.dense.Dense.parameters_grad.0",
    }

"""Functions under `ms.jit` inside a training in PyNative: recorded in the order of the calls, and not a bit changed."""

import logging

import mindspore as ms
import pytest
from debugged_nets import Branches, Net, batches, dump_of, recorded
from mindspore import nn, ops

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger

pytestmark = pytest.mark.usefixtures("clean")


@ms.jit
def activation(x):
    return ops.tanh(x * 0.1)


class JitBranches(Branches):
    @ms.jit
    def construct(self, x):
        return self.mul(self.dense(x), x) * 0.1


class JitNet(Net):
    """One function and one module are compiled, the rest is not."""

    def __init__(self):
        super().__init__()
        self.branches = JitBranches()

    def construct(self, x):
        x = activation(self.first(x))
        x = x + self.branches(x)
        return self.head(x).mean()


def trained(kind, config=None):
    """Losses and weights of two steps."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = {"parts": JitNet, "step": Net}[kind]()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))

    @ms.jit
    def jit_step(x):
        return step(x)

    train = {"parts": step, "step": jit_step}[kind]
    debugger = PrecisionDebugger(DebuggerConfig.of(config)) if config else None
    losses = recorded(train, net, batches(2), debugger)
    return losses, [parameter.asnumpy().tobytes() for parameter in net.get_parameters()]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    result = trained("parts", {"task": "md5", "level": "mix", "dump_path": str(folder)})
    return result, dump_of(folder, step=1)


def test_a_training_with_compiled_parts_is_bit_equal_with_and_without_the_debugger(parts):
    assert parts[0] == trained("parts")


def test_what_a_compiled_part_computes_stands_where_it_was_called(parts):
    data, _, construct = parts[1]
    names = list(data["data"])
    forward = [
        "Cell.first.Dense.forward.0", "Jit.activation.0.forward", "Cell.branches.dense.Dense.forward.0",
        "Cell.branches.JitBranches.forward.0", "Tensor.__add__.0.forward", "Cell.head.Dense.forward.0",
    ]  # fmt: skip
    backward = [
        "Cell.head.Dense.backward.0", "Tensor.__add__.0.backward", "Cell.branches.JitBranches.backward.0",
        "Jit.activation.0.backward", "Cell.first.Dense.backward.0",
    ]  # fmt: skip
    order = [*forward, *backward]
    assert [name for name in names if name in order] == order
    assert construct["Cell.branches.dense.Dense.forward.0"] == "Cell.branches.JitBranches.forward.0"


def test_operators_of_compiled_and_other_parts_are_counted_together(parts):
    data, _, construct = parts[1]
    products = [name for name in data["data"] if ".MatMul." in name and name.endswith("forward")]
    assert products == [f"Primitive.matmul.MatMul.{number}.forward" for number in range(3)]
    assert [construct[name].split(".")[1] for name in products] == ["first", "branches", "head"]
    entries = [data["data"][name] for name in products]
    assert [entry["output"][0]["shape"] for entry in entries] == [[4, 8], [4, 8], [4, 1]]


def test_a_whole_step_that_is_compiled_is_recorded(tmp_path, caplog):
    config = {"task": "md5", "level": "mix", "dump_path": str(tmp_path)}
    with caplog.at_level(logging.WARNING, "asd"):
        assert trained("step", config) == trained("step")
    data = dump_of(tmp_path)[0]["data"]
    assert {"Cell.head.Dense.forward.0", "Cell.first.Dense.backward.0", "Jit.jit_step.0.forward"} <= set(data)
    assert {"Functional.tanh.0.backward", "Tensor.mean.0.forward", "Cell.head.Dense.parameters_grad.0"} <= set(data)
    assert "Primitive.matmul.MatMul.2.backward" in data
    assert [record.message for record in caplog.records if record.name == "asd"] == []

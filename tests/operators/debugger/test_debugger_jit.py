"""Functions under `ms.jit` inside a training in PyNative: not recorded, which is said once, and not a bit changed."""

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
    net = {"parts": JitNet, "step": Net}[kind]()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))

    @ms.jit
    def jit_step(x):
        return step(x)

    train = {"parts": step, "step": jit_step}[kind]
    debugger = PrecisionDebugger(DebuggerConfig.of(config)) if config else None
    losses = recorded(train, net, batches(2), debugger)
    return losses, [parameter.asnumpy().tobytes() for parameter in net.get_parameters()]


@pytest.mark.parametrize(("kind", "name"), [("parts", "activation"), ("step", "trained.<locals>.jit_step")])
def test_what_is_compiled_is_not_recorded_and_that_is_said_once(kind, name, tmp_path, caplog):
    config = {"task": "md5", "level": "mix", "dump_path": str(tmp_path)}
    with caplog.at_level(logging.WARNING, "asd"):
        assert trained(kind, config) == trained(kind)
    assert [said.partition(" ")[0] for said in caplog.messages if "ms.jit" in said] == [name]
    if kind == "step":
        return
    data, _, construct = dump_of(tmp_path, step=1)
    names = list(data["data"])
    order = [
        "Cell.first.Dense.forward.0",
        "Cell.branches.JitBranches.forward.0",
        "Tensor.__add__.0.forward",
        "Cell.head.Dense.forward.0",
        "Cell.head.Dense.backward.0",
        "Tensor.__add__.0.backward",
        "Cell.branches.JitBranches.backward.0",
        "Cell.first.Dense.backward.0",
    ]
    assert [each for each in names if each in order] == order
    products = [each for each in names if ".MatMul." in each and each.endswith("forward")]
    assert [construct[each].split(".")[1] for each in products] == ["first", "head"]

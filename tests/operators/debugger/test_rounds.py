"""A compiled graph makes independent calls in any order; they meet those of PyNative all the same."""

import mindspore as ms
import pytest
from debugged_nets import batches, dump_of, recorded
from mindspore import nn, ops
from mindspore.common.initializer import Constant

from asd.dumps.compare.comparison import Options, compare_runs
from asd.dumps.pairing.request import Request
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger
from asd.operators.debugger.record import delivery

pytestmark = [
    pytest.mark.usefixtures("clean"),
    pytest.mark.skipif(delivery.library is None, reason="the C++ kernel was not built"),
]


class Loops(nn.Cell):
    """A loop of the kind that a class below has in `mixed`."""

    def __init__(self):
        super().__init__()
        self.experts, self.gates = (
            nn.CellList([nn.Dense(8, 8, weight_init=Constant(value + add), bias_init="zeros")
                         for value in (0.1, 0.2, 0.3, 0.4)])
            for add in (0.0, 0.05)
        )  # fmt: skip
        self.head = nn.Dense(8, 1, weight_init="ones", bias_init="zeros")

    def construct(self, x):
        return self.head(self.mixed(x)).mean()

    def scaled(self, x, times):
        return ops.tanh(x) * times


class Enumerated(Loops):
    def mixed(self, x):
        out = ops.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + self.scaled(expert(x), i + 1)
        return out * i


class Numbered(Loops):
    def mixed(self, x):
        out = self.experts[0](x)
        for i in range(1, len(self.experts)):
            out = out + ops.sigmoid(self.experts[i](x) * (i + 0.5))
        return out


class Zipped(Loops):
    def mixed(self, x):
        out = x
        for expert, gate in zip(self.experts, self.gates):  # noqa: B905 - graphs know no `strict`
            out = out + ops.sigmoid(gate(x)) * expert(x).tanh()
        return out


class Nested(Loops):
    """A loop in a loop, and a branch in that."""

    def mixed(self, x):
        out = x
        for expert in self.experts:
            y = expert(x)
            for power in (1, 2):
                if power > 1:
                    out = out + (y * power).tanh()
                else:
                    out = out + (y * 3).exp() * 0.001
        return out


class Left(Loops):
    """Loops that are not written out: one is left early, one changes its name."""

    def mixed(self, x):
        for i in range(3):
            x = ops.tanh(x) * 2
            if i == 1:
                break
        for i in range(3):
            if i == 1:
                continue
            x = ops.tanh(x) + i
            i = 5
            x = x * i
        return x


class Chosen(Loops):
    """A layer and an operator under a name that depends on a shape."""

    def __init__(self):
        super().__init__()
        self.tall, self.flat, self.other = ops.Mul(), ops.Mul(), ops.Mul()

    def mixed(self, x):
        if x.shape[0] > 100:
            times = self.other
        else:
            times = self.tall if len(x.shape) == 2 else self.flat
        return times(self.flat(times(times(x, 3), x), x), 2)


def entries(mode, kind, folder):
    ms.set_context(mode={"graph": 0, "pynative": 1}[mode])
    net = kind()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.01))
    debugger = PrecisionDebugger(
        DebuggerConfig.of({"task": "statistics", "level": "mix", "dump_path": str(folder / mode)})
    )
    recorded(step, net, batches(1), debugger)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return dump_of(folder / mode)[0]["data"]


def norms(entry):
    sides = [entry.get(side, []) for side in ("input_args", "input", "output")]
    return [value["Norm"] for side in sides for value in side if isinstance(value, dict) and "Norm" in value]


@pytest.mark.parametrize("kind", [Enumerated, Numbered, Zipped, Nested, Left, Chosen])
def test_each_call_of_a_loop_has_in_a_graph_the_number_and_the_values_it_has_in_pynative(kind, tmp_path):
    graph, pynative = entries("graph", kind, tmp_path), entries("pynative", kind, tmp_path)
    shapes = {name for name in pynative if name.startswith("Primitive.shape_op.Shape.")}  # a graph computes none
    assert set(graph) == set(pynative) - shapes
    assert len(graph) > 10
    for name, entry in ((name, pynative[name]) for name in graph):
        assert norms(graph[name])[-1:] == pytest.approx(norms(entry)[-1:], rel=1e-4, abs=1e-6), name


class Shared(nn.Cell):
    """One module, called with several inputs none of which needs another's result."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.SequentialCell(
            nn.Dense(8, 8, weight_init=Constant(0.2), bias_init="zeros"), nn.ReLU(),
            nn.Dense(8, 4, weight_init=Constant(0.3), bias_init="zeros"),
        )  # fmt: skip

    def construct(self, x):
        one, two, three = self.encoder(ops.tanh(x + 1)), self.encoder(x * 0.5), self.encoder(ops.sigmoid(x))
        return ((one - two) ** 2).mean() + (three * one).mean()


def test_calls_of_a_shared_module_are_held_against_those_they_are_though_their_numbers_differ(tmp_path):
    for mode in ("graph", "pynative"):
        entries(mode, Shared, tmp_path)
    outcome = compare_runs(Request(tmp_path / "graph", tmp_path / "pynative"), tmp_path / "out", Options())
    assert outcome.first is None, outcome.sentence

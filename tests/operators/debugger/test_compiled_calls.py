"""A compiled graph records the calls that PyNative records, under the same names; no bit of the training changes."""

import ast
import importlib

import mindspore as ms
import pytest
from debugged_nets import batches, dump_of, recorded
from mindspore import nn, ops
from mindspore.common.initializer import Constant
from mindspore.ops import functional as F  # noqa: N812

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger
from asd.operators.debugger.graph import compiled_calls
from asd.operators.debugger.graph.call_sites import CallSites
from asd.operators.debugger.record import delivery
from asd.operators.private import compiler

pytestmark = [
    pytest.mark.usefixtures("clean"),
    pytest.mark.skipif(delivery.library is None, reason="the C++ kernel was not built"),
]
PARSER = next(
    module.Parser
    for name in ("mindspore.graph._parse.parser", "mindspore._extends.parse.parser")
    if importlib.util.find_spec(name.rpartition(".")[0]) and hasattr(module := importlib.import_module(name), "Parser")
)
PARSED_BY = PARSER.__init__, PARSER.parse


def gate(x, y):
    return ops.sigmoid(x) * y


@ms.jit
def activation(x):
    return ops.tanh(x * 0.1)


class Block(nn.Cell):
    def __init__(self, last):
        super().__init__()
        self.dense = nn.Dense(8, 8, weight_init="ones", bias_init="zeros")
        self.mul = ops.Mul()
        self.last = last

    def halves(self, x):
        left, right = ops.split(x, 4, axis=-1)
        return ops.concat((right, left), -1)

    def construct(self, x):
        x = self.halves(self.mul(self.dense(x), x) * 0.1)
        if self.last:
            x = x.exp()
        return gate(x, 2.0 * x) - gate(x + 1, x)


class Net(nn.Cell):
    """Functions of ops and mint, methods and operators of tensors, a helper, loops, a function under `ms.jit`."""

    def __init__(self):
        super().__init__()
        self.first = nn.Dense(8, 8, weight_init="ones", bias_init="zeros")
        self.blocks = nn.CellList([Block(last=False), Block(last=True)])
        self.head = nn.Dense(8, 1, weight_init="ones", bias_init="zeros")
        self.one, self.two, self.three = (
            nn.Dense(8, 8, weight_init=Constant(value), bias_init="zeros") for value in (0.1, 0.2, 0.3)
        )

    def construct(self, x):
        rows, columns = x.shape
        one, two, three = (layer(x).reshape((columns, rows)).tanh() for layer in (self.one, self.two, self.three))
        x = x + (one * two / (three + 2)).reshape((rows, columns)) * 0.01
        x = activation(self.first(x) * 0.1)
        for block in self.blocks:
            x = x + block(x)
        x = ms.mint.add(x, x, alpha=2)
        x = ops.softmax(x, axis=-1) / 3
        x += ms.mint.nn.functional.relu(-x)
        x = F.pow(x.reshape((rows, columns)), 2)
        total = x[0].sum(axis=-1, keepdims=False)
        return self.head(x).mean() + total


def trained(mode, config=None, steps=2):
    """Losses and weights."""
    ms.set_context(mode={"graph": 0, "pynative": 1}[mode])
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.05, 0.9))
    debugger = PrecisionDebugger(DebuggerConfig.of(config)) if config else None
    losses = recorded(step, net, batches(steps), debugger)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return losses, [parameter.asnumpy().tobytes() for parameter in net.get_parameters()]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """Of both modes, what the training came to, and the second step's entries and parents."""
    found = {}
    for mode in ("graph", "pynative"):
        folder = tmp_path_factory.mktemp(mode)
        result = trained(mode, {"task": "statistics", "level": "mix", "dump_path": str(folder)})
        data, _, construct = dump_of(folder, step=1)
        found[mode] = result, data["data"], construct
    return found


def values_of(entry):
    """The leaves of an entry with their places."""
    if isinstance(entry, dict) and "type" not in entry:
        return [((key, *path), value) for key, each in entry.items() for path, value in values_of(each)]
    if isinstance(entry, list):
        return [((place, *path), value) for place, each in enumerate(entry) for path, value in values_of(each)]
    return [((), entry)]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_losses_and_weights_are_bit_equal_with_and_without_the_debugger(mode, dumps):
    assert dumps[mode][0] == trained(mode)


def test_both_modes_record_the_same_entries_with_the_same_parents(dumps):
    (_, graph, graph_parents), (_, pynative, parents) = dumps["graph"], dumps["pynative"]
    shapes = {name for name in pynative if name.startswith("Primitive.shape_op.Shape.")}
    assert len(shapes) == 7  # a compiled graph computes none
    assert set(graph) == set(pynative) - shapes
    assert graph_parents == {name: parent for name, parent in parents.items() if name not in shapes}
    expected = {
        "Functional.tanh.0.forward", "Functional.concat.1.backward", "Functional.pow.0.backward", "Mint.add.0.forward",
        "MintFunctional.relu.0.backward", "Tensor.__rmul__.1.forward", "Tensor.exp.0.backward",
        "Tensor.__iadd__.0.forward", "Tensor.reshape.0.forward", "Tensor.__getitem__.0.backward",
        "Jit.activation.0.backward", "Cell.blocks.1.dense.Dense.parameters_grad.0",
    }  # fmt: skip
    assert expected <= set(graph)


def test_both_modes_record_the_same_values_to_the_rounding_of_float32(dumps):
    (_, graph, _), (_, pynative, _) = dumps["graph"], dumps["pynative"]
    seen = 0
    for name, entry in ((name, pynative[name]) for name in graph):
        here, there = dict(values_of(graph[name])), dict(values_of(entry))
        assert set(here) == set(there), name
        for path, value in there.items():
            if isinstance(value, dict) and "shape" in value:
                seen += 1
                assert (here[path]["dtype"], here[path]["shape"]) == (value["dtype"], value["shape"]), (name, path)
                for field in ("Max", "Min", "Mean", "Norm"):
                    assert here[path][field] == pytest.approx(value[field], rel=1e-4, abs=1e-7), (name, path, field)
            else:
                assert here[path] == value, (name, path)
    assert seen > 250


def test_the_parser_is_what_it_was_after_each_step(tmp_path):
    before = PARSER.__init__, PARSER.parse
    debugger = PrecisionDebugger(
        DebuggerConfig.of({"task": "statistics", "level": "L1", "dump_path": str(tmp_path), "step": [7]})
    )
    debugger.start(Net())
    assert (PARSER.__init__, PARSER.parse) != before
    debugger.stop()
    assert (PARSER.__init__, PARSER.parse) == before


def test_gradients_reach_an_optimizer_that_is_a_graph_of_its_own(tmp_path):
    ms.set_context(mode=ms.GRAPH_MODE)
    net = nn.SequentialCell(nn.Dense(8, 1, weight_init="ones", bias_init="zeros"))
    optimizer = nn.SGD(net.trainable_params(), 0.1)

    def forward(x):
        return net(x).mean()

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)
    debugger = PrecisionDebugger(DebuggerConfig.of({"task": "statistics", "level": "L0", "dump_path": str(tmp_path)}))
    debugger.start(net)
    _, gradients = gradient(batches(1)[0])
    optimizer(gradients)
    debugger.stop()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    entry = dump_of(tmp_path)[0]["data"]["Cell.0.Dense.parameters_grad.0"]
    assert entry["bias"][0]["Max"] == 1.0
    assert entry["weight"][0]["Mean"] == pytest.approx(float(batches(1)[0].asnumpy().mean()), rel=1e-5)


@pytest.mark.parametrize(("version", "is_known"), [("2.11.0", False), ("3.0", False), ("2.6.1", False), ("dev", False),
                                                 ("2.10.0rc1", True), ("2.7.1", True)])  # fmt: skip
def test_a_version_of_mindspore_is_known_by_its_first_two_numbers(version, is_known, monkeypatch):
    monkeypatch.setattr(ms, "__version__", version)
    assert (compiler.unknown() == "") is is_known
    assert is_known or version in compiler.unknown()


def test_nothing_is_replaced_in_a_mindspore_that_is_not_known_and_what_is_left_out_is_told(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(ms, "__version__", "2.11.0")
    monkeypatch.setattr(compiled_calls, "_told", set())
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Block(last=False)
    debugger = PrecisionDebugger(DebuggerConfig.of({"task": "statistics", "level": "mix", "dump_path": str(tmp_path)}))
    for x in batches(2):
        debugger.start(net)
        assert (PARSER.__init__, PARSER.parse) == PARSED_BY
        net(x)
        debugger.stop()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert {"Cell.dense.Dense.forward.0", "Primitive.mul.Mul.0.forward"} <= set(dump_of(tmp_path)[0]["data"])
    assert not any(name.startswith(("Tensor.", "Functional.")) for name in dump_of(tmp_path)[0]["data"])
    told = [each.message for each in caplog.records if "2.11.0" in each.message]
    assert len(told) == 1
    assert "the compiler of MindSpore 2.11.0 is not known, that of 2.7 to 2.10 is" in told[0]
    assert "gradients of parameters are not" in told[0]


class Spoiled(CallSites):
    """Makes of every function something that no compiler takes."""

    def change(self, function):
        super().change(function)
        function.body.insert(0, ast.parse("a_name_that_is_nowhere()").body[0])


@pytest.mark.parametrize("mode", ["graph", "jit"])
def test_a_graph_that_does_not_compile_with_taps_is_compiled_without_them(mode, tmp_path, monkeypatch, caplog):
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    net = Net()
    x = batches(1)[0]
    expected = net(x).asnumpy().tobytes()
    other = Net()
    run = ms.jit(other.construct) if mode == "jit" else other
    monkeypatch.setattr(compiled_calls, "CallSites", Spoiled)
    debugger = PrecisionDebugger(DebuggerConfig.of({"task": "statistics", "level": "L1", "dump_path": str(tmp_path)}))
    debugger.start(other)
    found = run(x).asnumpy().tobytes()
    debugger.stop()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert found == expected
    assert any("does not compile with taps, so calls in it are not recorded" in each.message for each in caplog.records)
    assert (PARSER.__init__, PARSER.parse) == PARSED_BY


def test_an_error_of_the_network_itself_is_told_as_without_the_debugger(tmp_path):
    class Wrong(nn.Cell):
        def construct(self, x):
            return ops.matmul(x, x)

    def error_of(call):
        with pytest.raises(RuntimeError, match="MatMulExt") as caught:
            call()
        return str(caught.value).partition("\n")[0]

    ms.set_context(mode=ms.GRAPH_MODE)
    x = ms.ops.ones((2, 3))
    expected = error_of(lambda: Wrong()(x))
    debugger = PrecisionDebugger(DebuggerConfig.of({"task": "statistics", "level": "L1", "dump_path": str(tmp_path)}))
    net = Wrong()
    debugger.start(net)
    found = error_of(lambda: net(x))
    debugger.stop()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert found == expected

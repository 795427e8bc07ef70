"""`asd compare --rounds`: the first wrong operator, found by recording a few calls in each run."""

import json

import mindspore as ms
import numpy as np
import pytest
from debugged_nets import batches, dump_of
from mindspore import Parameter, Tensor, nn, ops

from asd.cli import main
from asd.errors import ConfigError
from asd.operators import PrecisionDebugger

pytestmark = pytest.mark.usefixtures("clean")


class Scaled(nn.Cell):
    """Its weight's gradient is scaled on its way, and nothing else."""

    def __init__(self, factor):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(8, np.float32)))

        def scale(gradient):
            return gradient * factor

        self.scale = ops.InsertGradientOf(scale)
        self.mul = ops.Mul()

    def construct(self, x):
        return self.mul(x, self.scale(self.weight))


class Part(nn.Cell):
    def __init__(self, factor, power):
        super().__init__()
        self.dense = nn.Dense(8, 8, weight_init="ones", bias_init="zeros")
        self.scaled = Scaled(factor)
        self.power = power

    def construct(self, x):
        return ops.tanh(self.scaled(self.dense(x) * 0.1)) ** self.power


class Whole(nn.Cell):
    def __init__(self, fault):
        super().__init__()
        self.first = nn.Dense(8, 8, weight_init="ones", bias_init="zeros")
        self.parts = nn.CellList(
            [Part(1.5 if fault == "gradient" and i else 1.0, 3 if fault == "call" and i else 2) for i in range(2)]
        )
        if fault == "weight":
            weight = self.parts[1].dense.weight
            weight.set_data(weight + Tensor(np.eye(8, dtype=np.float32)))

    def construct(self, x):
        x = self.first(x)
        for part in self.parts:
            x = x + part(x)
        return x.mean()


def dumped(mode, fault, config, folder):
    ms.set_context(mode={"graph": 0, "pynative": 1}[mode])
    net = Whole(fault)
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.05))
    debugger = PrecisionDebugger(config, dump_path=folder)
    debugger.start(net)
    step(batches(1)[0]).asnumpy()
    debugger.stop()
    return net


def first_round(tmp_path):
    config = tmp_path / "config.json"
    section = {"summary_mode": "md5", "inside": ""}
    config.write_text(json.dumps({"task": "statistics", "level": "mix", "statistics": section}))
    return config


ANSWERS = {
    ("weight", "graph"): ["parts.1", "A weight is wrong before Cell.parts.1.dense.Dense.forward.0"],
    ("call", "graph"): ["parts.1", "What Tensor.__pow__.0.forward is given is wrong already: the argument input.1"],
    ("gradient", "graph"): [
        "parts.1",
        "parts.1.scaled",
        "wrong operator is Cell.parts.1.scaled.Scaled.parameters_grad",
    ],
    ("call", "pynative"): ["parts.1", "What Tensor.__pow__.0.forward is given is wrong already: the argument input.1"],
}


@pytest.mark.parametrize(("fault", "mode"), list(ANSWERS))
def test_each_round_is_inside_the_module_that_the_last_one_named(fault, mode, tmp_path, capsys):
    config = first_round(tmp_path)
    *insides, answer = ANSWERS[fault, mode]
    for number, after in enumerate([*insides, None]):
        run, golden = tmp_path / f"run{number}", tmp_path / f"golden{number}"
        dumped(mode, fault, config, run)
        dumped(mode, "", config, golden)
        capsys.readouterr()
        code = main(["compare", "-tp", str(run), "-gp", str(golden), "-o", "out", "--rounds", str(config)])
        out = capsys.readouterr().out
        assert code == (0 if after is None else 3), out
        inside = json.loads(config.read_text())["statistics"]["inside"]
        assert inside == (insides[-1] if after is None else after)
    assert answer in out


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_round_records_what_one_module_calls_and_the_gradients_below_it(mode, tmp_path):
    config = first_round(tmp_path)
    config.write_text(config.read_text().replace('"inside": ""', '"inside": "parts.0"'))
    net = dumped(mode, "", config, tmp_path / "run")
    names = {name.rpartition(".forward")[0] or name for name in dump_of(tmp_path / "run")[0]["data"]}
    assert {name for name in names if "backward" not in name} == {
        "Cell.parts.0.Part", "Cell.parts.0.dense.Dense", "Cell.parts.0.scaled.Scaled", "Tensor.__mul__.0",
        "Functional.tanh.0", "Tensor.__pow__.0", "Cell.parts.0.dense.Dense.parameters_grad.0",
        "Cell.parts.0.scaled.Scaled.parameters_grad.0",
    }  # fmt: skip
    tapped = [path for path, cell in net.cells_and_names() if "asd_tap_site" in vars(cell)]
    assert sorted(tapped) == (["parts.0", "parts.0.dense", "parts.0.scaled"])


def test_sound_runs_end_the_rounds_and_leave_the_config_as_it_is(tmp_path, capsys):
    config = first_round(tmp_path)
    before = config.read_text()
    for name in ("run", "golden"):
        dumped("graph", "", config, tmp_path / name)
    assert main(["compare", "-tp", "run", "-gp", "golden", "--rounds", str(config)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "This round was of the network, and what else there is was not recorded."
    )
    assert config.read_text() == before


def test_a_debugger_of_all_records_all_after_one_of_a_round(tmp_path):
    config = first_round(tmp_path)
    net = dumped("graph", "", config, tmp_path / "round")
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.05))
    debugger = PrecisionDebugger(level="L0", dump_path=tmp_path / "all")
    debugger.start(net)
    step(batches(1)[0]).asnumpy()
    debugger.stop()
    data = dump_of(tmp_path / "all")[0]["data"]
    assert sum(name.endswith(".forward.0") for name in data) == 7


@pytest.mark.parametrize(
    ("level", "inside", "valid"),
    [("L0", "", 'at the level "mix"'), ("mix", 3, "the path of a module"), ("mix", "part", "parts.1.scaled")],
)
def test_a_place_that_there_is_not_is_refused_with_those_that_there_are(level, inside, valid, tmp_path):
    config = first_round(tmp_path)
    content = {"task": "statistics", "level": level, "statistics": {"inside": inside}}
    config.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=valid):
        dumped("pynative", "", config, tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "told"), [('{"task": "statistics", "level": "mix"}', '"inside": ""'), ("{", "--rounds has the value")]
)
def test_a_config_without_a_round_is_refused(text, told, tmp_path, capsys):
    config = first_round(tmp_path)
    config.write_text(text)
    for name in ("run", "golden"):
        (tmp_path / name).mkdir()
    assert main(["compare", "-tp", "run", "-gp", "golden", "--rounds", str(config)]) == 2
    assert told in capsys.readouterr().err

"""`asd overflow_check`: the first call that made Inf, NaN or an overflow, from the statistics alone."""

import json

import numpy as np
import pytest

from asd.cli import main
from tests.asd.dumps import dumps


def write_step(folder, broken=()):
    """Two ranks; in each of `broken` (rank, tensor, value) one element is bad."""
    for rank in range(2):
        arrays = dumps.golden_arrays()
        for where, name, value in broken:
            if where == rank:
                arrays[name].flat[3] = value
        dumps.write_network(folder / f"rank{rank}", arrays, task="statistics")
    return folder


def facts_of(capsys, folder):
    assert main(["overflow_check", "-i", str(folder), "-o", str(folder / "out"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (file,) = (folder / "out").glob("anomaly_analyze_*.json")
    assert json.loads(file.read_text()) == printed
    return printed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_call_that_made_it_is_named_with_its_stack_and_numbers(tmp_path, capsys, value):
    facts = facts_of(capsys, write_step(tmp_path / "step0", [(1, "a", value), (1, "y", value)]))
    assert list(facts) == ["rank_1"]
    assert facts["rank_1"]["op_name"] == "Mint.add.0.forward"
    assert facts["rank_1"]["stack_info"][0].startswith("File /train.py, line 7")
    assert facts["rank_1"]["data_info"]["output.0"]["shape"] == [4, 16]
    assert str(float(value)) in facts["rank_1"]["data_info"]["output.0"].values()


def test_a_call_that_was_given_it_is_named_when_none_made_it(tmp_path, capsys):
    step = write_step(tmp_path / "step0", [(0, "gy", np.nan), (0, "ga", np.nan), (0, "gh", np.nan), (0, "gx", np.nan)])
    assert main(["nan_analyze", "-i", str(step), "-o", str(tmp_path / "out")]) == 0
    assert "rank_0: Cell.net.fc2.Dense.backward.0 is the first" in (out := capsys.readouterr().out)
    assert "was given it already" in out


def test_a_sound_step_is_told_to_be_sound(tmp_path, capsys):
    assert facts_of(capsys, write_step(tmp_path / "step0")) == {}


@pytest.mark.parametrize("arguments", [[], ["-i", "nowhere"], ["-i", "."]])
def test_wrong_usage_is_one_sentence(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["overflow_check", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_inf_that_a_weight_held_is_told_as_such_and_no_module_around_it_is_blamed(tmp_path, capsys, level):
    x, w = np.ones((2, 4), np.float32), np.eye(4, dtype=np.float32)
    w[0, 0] = np.inf
    with np.errstate(all="ignore"):
        h = x @ w
    block, linear = "Cell.block.Block.forward.0", "Cell.block.w1.Linear.forward.0"
    dump = dumps.DumpWriter(tmp_path / "step0/rank0", task="statistics", level=level)
    if level == "mix":
        dump.forward("Primitive.matmul.MatMul.0.forward", [x, w], [h], parent=linear)
    dump.forward(linear, [x], [h], {"weight": w}, parent=block).forward(block, [x], [h], {}).write()
    assert main(["overflow_check", "-i", str(tmp_path / "step0"), "-o", str(tmp_path / "out")]) == 0
    name = linear if level == "L0" else "Primitive.matmul.MatMul.0.forward"
    slot = "parameters.weight" if level == "L0" else "input.1"
    expected = f"rank_0: {name} is the first with Inf, NaN or an overflow, and its weight {slot} held it already."
    assert expected in capsys.readouterr().out


def test_a_module_that_hands_on_what_a_call_in_it_gave_made_nothing(tmp_path, capsys):
    x, h = np.ones(4, np.float32), np.array([1, 2, np.inf, 3], np.float32)
    block = "Cell.block.Block.forward.0"
    dump = dumps.DumpWriter(tmp_path / "step0/rank0", task="statistics")
    dump.forward("Tensor.masked.0.forward", [h], [h + x], parent=block).forward(block, [x], [h + x], {}).write()
    assert facts_of(capsys, tmp_path / "step0")["rank_0"]["op_name"] == "Tensor.masked.0.forward"

"""Runs that are both sound accuse nobody, and what could not be compared is said."""

import json

import numpy as np
import pytest

from asd.cli import main
from asd.dumps.compare.first_difference import Answer
from tests.asd.dumps.dumps import MS, PT, compared, noise, outcome_of


@pytest.mark.parametrize(
    "name", ["Primitive.dropout.Dropout.0.forward", "Mint.rand_like.0.forward", "Cell.drop.Dropout.forward.0"]
)
def test_two_seeds_of_a_random_operator_are_no_wrong_operator(tmp_path, name):
    def write(dump, other):
        x = noise(4, 8)
        dump.forward(name, [x], [x * (noise(4, 8, seed=other) > 0)])

    found = outcome_of(tmp_path, write).first.divergence
    assert (found.call, found.kind, found.answer) == (name, "random", Answer.ASKED_DIFFERENTLY)


def test_another_token_is_data_and_no_weight(tmp_path):
    def write(dump, other):
        table, ids = noise(20, 4), np.int64([3, 12 if other else 13, 5])
        dump.forward("Functional.gather.0.forward", [table, ids, 0], [table[ids]], parent="Cell.embed.Embed.forward.0")
        dump.forward("Cell.embed.Embed.forward.0", [ids], [table[ids]], {"weight": table})
        dump.forward("Functional.roll.0.forward", [ids], [np.roll(ids, 1)])  # its statistics are those of the ids

    found = outcome_of(tmp_path, write, head={}).first.divergence
    assert (found.kind, found.call, found.apart) == ("batch", "Functional.gather.0.forward", None)


@pytest.mark.parametrize("frameworks", [(PT, MS), (MS, MS)])
def test_three_operators_against_the_fused_one_name_nobody(tmp_path, frameworks):
    def write(dump, apart):
        x, gate = noise(4, 8), noise(4, 8, seed=1)
        silu = gate / (1 + np.exp(-gate))
        dump.forward("Tensor.add.0.forward", [x], [x + 1])
        if apart:
            dump.forward("Functional.sigmoid.0.forward", [gate], [silu / gate])
            dump.forward("Tensor.__mul__.0.forward", [gate, silu / gate], [silu])
            dump.forward("Tensor.__mul__.1.forward", [silu, x], [silu * x])
        else:
            dump.forward("Functional.swiglu.0.forward", [gate, x], [silu * x])
        off = np.float32(0.1 * apart)
        dump.forward("Functional.linear.0.forward", [silu * x + off], [silu * x + 2 * off])

    found = outcome_of(tmp_path, write, frameworks).first.divergence
    if frameworks == (MS, MS):
        assert (found.kind, found.call) == ("structure", "Functional.sigmoid.0.forward")
    else:
        assert (found.kind, found.rows) == ("rows", ("Functional.linear.0.forward.input.0",))


@pytest.mark.parametrize("bad", [-np.inf, np.nan])
@pytest.mark.parametrize(("off", "is_sound"), [(1e-7, True), (1e-2, False)])
def test_what_differs_beside_inf_and_nan_at_equal_places_is_measured_by_finite_elements(tmp_path, bad, off, is_sound):
    def write(dump, other):
        x = noise(8, 8)
        y = (x * (1 + off * other * noise(8, 8, seed=1))).astype(np.float32)
        masked = np.where(np.tri(8, dtype=bool), y, np.float32(bad))
        dump.forward("Mint.mul.0.forward", [x], [masked]).forward("Tensor.to.0.forward", [masked], [masked])

    assert (outcome_of(tmp_path, write, head={}).answer is Answer.DO_NOT_PART) is is_sound


def network(dump, wrong):
    x = noise(4, 8)
    dump.forward("Mint.add.0.forward", [x], [x + 1]).forward("Mint.mul.0.forward", [x + 1], [x * 2 + wrong])


def test_only_what_was_compared_is_counted(tmp_path):
    outcome = outcome_of(tmp_path, lambda dump, _: network(dump, 0))
    assert outcome.answer is Answer.DO_NOT_PART
    assert " 4 rows were compared" in outcome.sentence
    (tmp_path / "run/dump_tensor_data/Mint.mul.0.forward.output.0.npy").unlink()
    sentence = compared(tmp_path).sentence
    assert all(word in sentence for word in (" 3 rows were", "; 1 row could not", "first Mint.mul.0.forward.output"))


@pytest.mark.parametrize(
    ("missing", "row"), [("Mint.mul.0.forward.input.0", "output.0"), ("Mint.add.0.forward.output.0", "input.0")]
)
def test_what_was_not_compared_vouches_for_nothing(tmp_path, missing, row):
    def write(dump, wrong):
        x, given = noise(4, 8), noise(4, 8) + 1 + wrong * (row == "input.0")
        dump.forward("Mint.add.0.forward", [x], [x + 1]).forward("Mint.mul.0.forward", [given], [given * 2 + wrong])

    outcome_of(tmp_path, write)
    (tmp_path / "run/dump_tensor_data" / f"{missing}.npy").unlink()
    found = compared(tmp_path).first.divergence
    assert (found.kind, found.rows) == ("rows", (f"Mint.mul.0.forward.{row}",))


def test_an_operator_that_is_given_a_wrong_parameter_of_its_module_is_not_named(tmp_path):
    def write(dump, wrong):
        x, w = noise(4, 8), noise(8, 8, seed=1) + wrong
        dump.forward("Primitive.matmul.MatMul.0.forward", [x, w], [x @ w], parent="Cell.fc.Dense.forward.0")
        dump.forward("Cell.fc.Dense.forward.0", [x], [x @ w], {"weight": w})

    found = outcome_of(tmp_path, write).first.divergence
    assert (found.call, found.kind) == ("Primitive.matmul.MatMul.0.forward", "weight")
    assert "parameters.weight of Cell.fc.Dense" in found.sentence


@pytest.mark.parametrize("sides", [["run"], ["run", "golden"]])
def test_where_nothing_could_be_compared_the_job_fails(tmp_path, capsys, monkeypatch, sides):
    outcome_of(tmp_path, lambda dump, _: (dump.forward("Mint.a.0.forward", [2], []), network(dump, 0)))
    for side in sides:
        for path in (tmp_path / side / "dump_tensor_data").iterdir():
            path.unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "-tp", "run", "-gp", "golden", "-o", "out"]) == 1
    error = capsys.readouterr().err
    assert ("Mint.add.0.forward.input.0" in error, error.count("\n")) == (True, 1)


def test_a_tensor_of_another_type_than_its_dump_says_is_not_compared(tmp_path):
    outcome_of(tmp_path, network)
    path = tmp_path / "run/dump_tensor_data/Mint.mul.0.forward.output.0.npy"
    np.save(path, np.load(path).astype(np.float64))
    assert "float64, its dump says Float32" in compared(tmp_path).sentence


def test_statistics_with_nan_on_both_sides_can_not_be_told(tmp_path):
    def write(dump, wrong):
        x, y = noise(4, 8), noise(4, 8, seed=1)
        y[0, 0] = np.nan
        y[1] += 3 * wrong
        dump.forward("Functional.matmul.0.forward", [x], [y])
        dump.forward("Functional.nan_to_num.0.forward", [y], [np.nan_to_num(y)])

    found = outcome_of(tmp_path, write, task="statistics").first.divergence
    assert (found.kind, found.rows) == ("rows", ("Functional.nan_to_num.0.forward.output.0",))
    assert "1 row before can't be told" in found.sentence
    lines = next(tmp_path.glob("out/*.csv")).read_text().splitlines()
    hidden = next(line for line in lines if line.startswith("Functional.matmul.0.forward.output.0"))
    assert "None,Inf or NaN on both sides" in hidden


def test_statistics_that_are_null_are_not_counted(tmp_path):
    outcome_of(tmp_path, lambda dump, _: network(dump, 0), task="statistics")
    for side in ("run", "golden"):
        path = tmp_path / side / "dump.json"
        content = json.loads(path.read_text())
        content["data"]["Mint.mul.0.forward"]["output"][0].update(dict.fromkeys(("Max", "Min", "Mean", "Norm")))
        path.write_text(json.dumps(content))
    sentence = compared(tmp_path).sentence
    assert all(word in sentence for word in ("statistics of 3 rows", "; 1 row could not"))


def test_what_would_move_a_cursor_reaches_neither_terminal_nor_table(tmp_path, capsys, monkeypatch):
    def write(dump, wrong):
        x = noise(4, 8)
        dump.forward("Mint.a\x1b[2Jdd.0.forward", [x], [x + wrong], kwargs={"k\x1bey": "a\x1b[2Jb"})
        dump.stacks = {name: ["File \x1b[2J.py, line 1"] for name in dump.stacks}

    outcome_of(tmp_path, write, task="statistics", md5=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compare.json").write_text(
        json.dumps({"npu_path": "run/dump.json", "bench_path": "golden/dump.json", "stack_path": "run/stack.json"})
    )
    assert main(["compare", "-i", "compare.json", "-o", "out2", "-tensor_log"]) == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err + next(tmp_path.glob("out2/*.csv")).read_text()
    assert "is Mint.a\\x1b[2Jdd.0.forward" in captured.out

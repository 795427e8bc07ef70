"""Gradients step by step: the documented bytes, the rule where two runs part, and bad input."""

import json

import numpy as np
import pytest

from asd.cli import main
from asd.dumps.compare.similarity import GradComparator, Suspect
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.gradient_table import row, write_step

GRADIENT = np.array([[-2.0, -1.0, 0.0], [0.5, 1.0, 3.0]], np.float32)
HEAD = {"L0": b"param_name,MD5,max,min,norm,shape\r\n", "L1": b"param_name,max,min,norm,shape\r\n"}
ROW = {"L0": b'w,c4e89550,3.0,-2.0,3.905124837953327,"(2, 3)"\r\n', "L1": b'w,3.0,-2.0,3.905124837953327,"(2, 3)"\r\n'}


def options(tmp_path, **more):
    return DebuggerConfig(tmp_path, "grad_probe", **more)


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_a_step_has_the_documented_bytes(tmp_path, level):
    write_step(tmp_path / "rank0", 7, {"w": GRADIENT}, options(tmp_path, grad_level=level))
    assert (tmp_path / "rank0" / "grad_summary_7.csv").read_bytes() == b"\xef\xbb\xbf" + HEAD[level] + ROW[level]
    directions = tmp_path / "rank0" / "step7" / "w.npy"
    assert directions.exists() == (level != "L0")
    if level != "L0":
        np.testing.assert_array_equal(np.load(directions), [[False, False, False], [True, True, True]])
    assert not [file for file in tmp_path.rglob(".*")]


def test_the_crc_of_float16_is_that_of_its_float32_values(tmp_path):
    half = np.array([1, -2, 0], np.float16)
    assert row("w", half, options(tmp_path, grad_level="L0"))[1] == "854d28b6"


def test_nan_is_told_and_a_gradient_of_no_elements_has_a_row(tmp_path):
    chosen = options(tmp_path)
    assert row("w", np.array([1.0, np.nan]), chosen)[1:4] == ["nan", "nan", "nan"]
    assert row("w", np.full(4, 1e30, np.float32), chosen)[3] == repr(float(np.float32(1e30)) * 2)
    assert row("w", np.array([]), chosen) == ["w", "nan", "nan", "0.0", "(0,)"]


def write_run(folder, steps, level="L1", rank=0):
    """`steps` is a list of {parameter: gradient}."""
    for number, gradients in enumerate(steps):
        write_step(folder / f"rank{rank}", number, gradients, DebuggerConfig(folder, "grad_probe", grad_level=level))
    return folder


def flipped(gradient, count):
    """The signs of the first `count` elements turned."""
    other = gradient.copy()
    other.reshape(-1)[:count] *= -1
    return other


def test_the_table_of_similarities_has_the_documented_bytes(tmp_path):
    big, small = np.ones(30, np.float32), np.ones((2, 5), np.float32)
    one = write_run(tmp_path / "a", [{"w": big, "b": small}] * 3)
    steps = [{"w": big, "b": small}, {"w": big, "b": flipped(small, 1)}, {"w": flipped(big, 3), "b": small}]
    other = write_run(tmp_path / "b", steps)
    (result,) = GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert result.file == tmp_path / "out" / "rank0" / "similarities.csv"
    assert result.file.read_bytes() == (
        b"\xef\xbb\xbfstep,0,1,2\r\nb,1.0,0.9,1.0\r\nw,1.0,1.0,0.9\r\nsummary,1.0,0.975,0.925\r\n"
    )
    assert result.suspects == [Suspect(1, 0.9, 0, "b", 1.0), Suspect(2, 0.9, 0, "w", 1.0)]
    assert all(word in GradComparator.sentence([result]) for word in ("step 1: ", " b on rank 0 ", "0.9000", "1.0000"))


@pytest.mark.parametrize(("equal", "suspect"), [([970], False), ([969], True), ([990, 960], False), ([990, 959], True)])
def test_in_the_first_step_the_limit_is_97_percent_and_later_a_fall_of_more_than_3(tmp_path, equal, suspect):
    gradient = np.ones(1000, np.float32)
    one = write_run(tmp_path / "a", [{"w": gradient}] * len(equal))
    other = write_run(tmp_path / "b", [{"w": flipped(gradient, 1000 - number)} for number in equal])
    (result,) = GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert bool(result.suspects) == suspect


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_a_fault_that_keeps_every_sign_is_found_in_the_statistics(tmp_path, level):
    gradient = np.array([1.0, -2.0], np.float32)
    one = write_run(tmp_path / "a", [{"w": gradient}] * 3, level)
    other = write_run(tmp_path / "b", [{"w": gradient}, {"w": gradient * 1000}, {"w": gradient}], level)
    results = GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert results[0].suspects == []
    assert "step 1, in w on rank 0" in GradComparator.sentence(results)


def test_only_ranks_and_steps_of_both_runs_are_compared(tmp_path):
    gradient = np.ones(4, np.float32)
    one, other = tmp_path / "a", tmp_path / "b"
    for rank in (0, 1):
        write_run(one, [{"w": gradient}] * 3, rank=rank)
    for rank in (1, 2):
        write_run(other, [{"w": gradient}] * 2, rank=rank)
    results = GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert [(result.rank, result.steps) for result in results] == [(1, [0, 1])]
    assert "are the same" in GradComparator.sentence(results)


def test_levels_meet_in_the_columns_of_both_and_parameters_of_one_run_are_counted(tmp_path):
    gradient = np.ones(4, np.float32)
    one = write_run(tmp_path / "a", [{"w": gradient, "a": gradient}] * 2, "L0")
    other = write_run(tmp_path / "b", [{"w": gradient, "b": gradient}] * 2)
    results = GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert GradComparator.sentence(results).endswith("ranks 0, 2 steps; 2 parameters are in one run only.")
    assert results[0].parameters == {"w"}


def test_the_command_prints_the_sentence_and_draws_pictures(tmp_path, capsys):
    gradient = np.ones(10, np.float32)
    one = write_run(tmp_path / "a", [{"w/x": gradient}] * 2)
    other = write_run(tmp_path / "b", [{"w/x": gradient}, {"w/x": -gradient}])
    assert main(["grad_compare", str(one), str(other), "-o", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert "w_x on rank 0" in printed.out
    pictures = tmp_path / "out" / "rank0" / "similarities_picture"
    assert sorted(file.name for file in pictures.iterdir()) == ["summary_similarities.svg", "w_x_similarities.svg"]
    assert (pictures / "w_x_similarities.svg").read_text().startswith("<svg ")
    before = (tmp_path / "out" / "rank0" / "similarities.csv").read_bytes()
    command = ["compare", "--gradients", "-tp", str(one), "-gp"]
    assert main([*command, str(one), "-o", str(tmp_path / "out")]) == 2
    assert "is there already and stays" in capsys.readouterr().err
    assert (tmp_path / "out" / "rank0" / "similarities.csv").read_bytes() == before
    assert main([*command, str(other), "-o", str(tmp_path / "json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"][0]["suspects"][0]["step"] == 1


def test_runs_that_do_not_fit_end_with_one_sentence(tmp_path, capsys):
    gradient = np.ones(4, np.float32)
    one = write_run(tmp_path / "a", [{"w": gradient}])
    shapes = write_run(tmp_path / "shapes", [{"w": np.ones(5, np.float32)}])
    ranks = write_run(tmp_path / "ranks", [{"w": gradient}], rank=3)
    names = write_run(tmp_path / "names", [{"net.w": gradient}])
    pickled = write_run(tmp_path / "pickled", [{"w": gradient}])
    np.save(pickled / "rank0" / "step0" / "w.npy", np.array([{}], object), allow_pickle=True)
    broken = write_run(tmp_path / "broken", [{"w": gradient}])
    (broken / "rank0" / "grad_summary_0.csv").write_text("a,b\n1\n")
    for path, code, sentence in [
        (tmp_path / "none", 2, "it must be the folder"),
        (shapes, 1, "the runs have not the same parameters"),
        (ranks, 2, "one in common is needed"),
        (names, 1, "have no parameter in common: net.w, w."),
        (pickled, 1, "unpickled"),
        (broken, 1, "is no table of gradients"),
    ]:
        command = ["compare", "--gradients", "-tp", str(one), "-gp", str(path), "-o", str(tmp_path / "out")]
        assert main(command) == code
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1
        assert not (tmp_path / "out").exists()

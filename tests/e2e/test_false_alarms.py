"""The benchmark of false alarms: it counts what it should, and can show one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.false_alarms.__main__ import sum_up

ROOT = Path(__file__).parents[2]


def run(*arguments):
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "benchmarks.false_alarms", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.slow
def test_a_training_with_first_tokens_for_its_experts_has_no_alarm_and_one_with_other_images_has(tmp_path):
    result = {}
    for words in ("eight experts", "four times as bright"):
        done = run("--only", words, "--seeds", "31", "--workers", "2", "--json", str(tmp_path / "out.json"))
        assert done.returncode == 0, done.stderr
        result[words] = json.loads((tmp_path / "out.json").read_text())
    steady, abrupt = result["eight experts"]["steady"], result["four times as bright"]["abrupt"]
    assert (steady["trainings"], steady["first_level"]) == (2, 0)
    assert steady["checks"] == 2 * 400 * 138
    assert abrupt["with_a_first_level_alarm"] == 2
    for row in result["four times as bright"]["trainings"]:
        assert row["first_level_steps"][0] == 201
        assert row["example"].startswith("step 201, stem.forward: forward: ")
        assert row["loss_in_the_end"] < row["loss_at_first"] / 2


def test_steady_and_abrupt_trainings_are_summed_up_apart():
    rows = [
        {"training": name, "checks": 1_000_000, "first_level": first, "second_level": 5}
        for name, first in (("a", 0), ("b", 2), ("c", 9))
    ]
    found = sum_up(rows, ["c"])
    assert found["steady"] == {
        "trainings": 2,
        "with_a_first_level_alarm": 1,
        "checks": 2_000_000,
        "first_level": 2,
        "second_level": 10,
        "first_level_per_million": (1.0, pytest.approx(3.65, abs=0.01)),
        "second_level_per_million": (5.0, pytest.approx(9.2, abs=0.05)),
    }
    assert (found["abrupt"]["first_level"], found["abrupt"]["trainings"]) == (9, 1)
    assert sum_up([], ["c"])["steady"] == {"trainings": 0, "with_a_first_level_alarm": 0, "checks": 0}


@pytest.mark.parametrize("wrong", [["--only", "nothing of the kind"], ["--workers", "0"], ["--seeds", "-1"]])
def test_a_wrong_argument_is_one_sentence(wrong):
    done = run(*wrong)
    assert done.returncode == 2
    assert "--only must be part of a training's name" in done.stderr
    assert "Traceback" not in done.stderr

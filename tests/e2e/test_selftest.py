"""`asd selftest` is all right where nothing is broken, and names what is broken on purpose."""

import json
from pathlib import Path

import pytest

from asd.cli import main
from asd.cli.train import selftest
from asd.diagnosis.selftest import ABSENT, OK, WRONG, Finding, line_of, read_line
from tests.support.tables import quick

BROKEN = Path(__file__).parent / "programs" / "broken_selftest.py"


def told(capsys, *options):
    """Exit code and findings."""
    code = main(["selftest", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("mode", quick(1, ["pynative", "both"]))
def test_nothing_is_wrong_with_the_operators_the_hashes_and_the_gate(capsys, mode):
    parts = [word for part in ("operators", "hashes", "gate") for word in ("--only", part)]
    code, result = told(capsys, "--device", "CPU", "--mode", mode, *parts)
    assert [each for each in result["findings"] if each["state"] == WRONG] == []
    assert code == 0
    assert not result["failed"]
    found = {(each["area"], each["name"], each["mode"]) for each in result["findings"] if each["state"] == OK}
    checks = (("MindSpore's operators", "ReduceMax"), ("hashes", "a flipped bit"), ("gate", "refuses and applies"))
    assert {(*check, each) for check in checks for each in {mode, "pynative"} - {"both"}} <= found


@pytest.mark.parametrize(
    ("mode", "what", "part", "area", "name"),
    quick(
        1,
        [
            ("pynative", "hash", "hashes", "hashes", "a flipped bit"),
            ("graph", "ReduceMax", "operators", "MindSpore's operators", "ReduceMax"),
            *((mode, "L2Loss", "measuring", "statistics", "of a tensor") for mode in ("graph", "pynative")),
        ],
    ),
)
def test_what_is_broken_is_named(capsys, monkeypatch, mode, what, part, area, name):
    monkeypatch.setattr(selftest, "_CHILD", (str(BROKEN), what))
    code, result = told(capsys, "--device", "CPU", "--mode", mode, "--only", part)
    assert code == 1
    wrong = [each for each in result["findings"] if each["state"] == WRONG]
    assert (area, name) in {(each["area"], each["name"]) for each in wrong}
    assert all(each["detail"] for each in wrong)


@pytest.mark.slow
def test_a_norm_whose_gradients_are_wrong_with_its_check_and_without_is_named(capsys, monkeypatch):
    monkeypatch.setattr(selftest, "_CHILD", (str(BROKEN), "backward"))
    code, result = told(capsys, "--device", "CPU", "--mode", "pynative", "--only", "measuring")
    assert code == 1
    wrong = {each["name"]: each["detail"] for each in result["findings"] if each["state"] == WRONG}
    assert set(wrong) == {"LayerNormASD"}


def test_a_process_that_dies_is_wrong_and_the_check_in_which_it_died_is_named(capsys, monkeypatch):
    monkeypatch.syspath_prepend(BROKEN.parent)  # the child finds what this process finds
    monkeypatch.setattr(selftest, "_CHILD", ("-m", BROKEN.stem, "crash"))
    code, result = told(capsys, "--device", "CPU", "--mode", "pynative", "--only", "operators")
    assert code == 1
    assert all(word in result["findings"][-1]["detail"] for word in ("signal 9", "MatMul"))


FINDINGS = [
    Finding("statistics", "of a tensor", OK, "graph", "float32"),
    Finding("statistics", "of a tensor", WRONG, "pynative", "float32", "the norm is 1, NumPy's is 2"),
    Finding("gate", "refuses and applies", ABSENT, "graph", "bfloat16", "no such update"),
]
MACHINE = {"host": "node7", "device": "Ascend:3", "mindspore": "2.10.0"}


def test_a_finding_survives_the_way_from_a_child():
    for finding in FINDINGS:
        assert read_line("[rank 0] " + line_of(finding)) == finding
    assert read_line("anything else") is None
    assert read_line(line_of(FINDINGS[0])[:-9]) is None


def test_the_text_has_words_for_people():
    lines = selftest.as_text(FINDINGS, MACHINE).splitlines()
    assert lines[:3] == ["host: node7", "device: Ascend:3", "mindspore: 2.10.0"]
    assert "  statistics: 1 checks" in lines
    assert "  statistics: of a tensor (pynative, float32): the norm is 1, NumPy's is 2" in lines
    assert lines[-1] == "1 right, 1 wrong, 1 absent."


def test_the_parts_are_those_of_the_child():
    source = (Path(selftest.__file__).parents[2] / "operators" / "selftest" / "__main__.py").read_text()
    names = [line.split('"')[1] for line in source.splitlines() if line.startswith('    "') and '": ' in line]
    assert tuple(names) == selftest._PARTS

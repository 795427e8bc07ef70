"""`asd compare`: what a user types, what she gets, and what she is told when it is wrong."""

import json
import re

import numpy as np
import pytest

from asd.cli import main
from tests.asd.dumps import dumps


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two runs, a compare.json, and the current folder among them."""
    arrays = dumps.golden_arrays()
    dumps.write_network(tmp_path / "golden/step0/rank0", arrays)
    arrays["a"] = arrays["a"].copy()
    arrays["a"].view(np.uint32)[1, 2] ^= np.uint32(1 << 30)
    dumps.write_network(tmp_path / "run/step0/rank0", arrays)
    runs = {"npu_path": "run", "bench_path": "golden"}
    content = {name: f"{run}/step0/rank0/dump.json" for name, run in runs.items()}
    content |= {"stack_path": "run/step0/rank0/stack.json", "is_print_compare_log": False}
    (tmp_path / "compare.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_answer_is_the_last_line_and_the_files_stand_in_the_folder(place, capsys):
    assert main(["compare", "-i", "compare.json", "-o", "out"]) == 0
    out = capsys.readouterr().out
    assert "Mint.add.0.forward" in out.splitlines()[-1]
    names = sorted(path.name for path in (place / "out").iterdir())
    assert [re.sub(r"\d{14}", "T", name) for name in names] == ["compare_result_T.csv", "compare_result_T.html"]
    assert "bit 30 flipped" in out


def test_the_answer_for_programs_is_json_with_every_bit(place, capsys):
    arguments = ["-f", "mindspore", "compare", "-tp", "run", "-gp", "golden", "-o", "out", "--json"]
    assert main(arguments) == 0
    facts = json.loads(capsys.readouterr().out)
    first = facts["first_divergence"]
    assert (first["call"], first["kind"], first["basis"]) == ("Mint.add.0.forward", "operator", "bits")
    assert first["difference"]["flipped"] == [30]
    assert facts["results"][0]["verdicts"] == {"Yes": 14, "None": 2, "No": 2}
    assert facts["sentence"].startswith("The first wrong operator")


def test_results_of_the_same_second_never_replace_each_other(place, capsys):
    for _ in range(3):
        assert main(["compare", "-i", "compare.json", "-o", "out", "-tensor_log"]) == 0
        assert "Mint.add.0.forward.output.0: No cosine" in capsys.readouterr().err
    assert len(list((place / "out").glob("*.csv"))) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"npu_pth": "x"},
        {"bench_path": None},
        {"npu_path": "nowhere"},
        {"npu_path": 7},
        {"is_print_compare_log": "yes"},
        {"npu_path": "golden/step0/rank0/dump_tensor_data"},
    ],
)
def test_a_wrong_compare_json_is_wrong_usage(place, capsys, change):
    content = json.loads((place / "compare.json").read_text()) | change
    (place / "compare.json").write_text(json.dumps(content))
    assert main(["compare", "-i", "compare.json", "-o", "out"]) == 2
    error = capsys.readouterr().err
    assert (error[:5], error.count("\n"), (place / "out").exists()) == ("asd: ", 1, False)
    assert any(f"{part}" in error for part in next(iter(change.items())))


@pytest.mark.parametrize(
    "arguments",
    ["nowhere.json", "compare.json -o /proc/nothing"]
    + [f"compare.json {more}" for more in ("-tp run", "-lm x.yaml", "-o compare.json", "--gradients")],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(place, capsys, arguments):
    assert main(["compare", "-i", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("asd: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "mapping", ["- a\n", "a: [1", "TopLayer: 7\n", "TopLayer: {a: {b: c}}\n", "!!python/object:os.system x\n"]
)
def test_a_mapping_file_of_another_form_is_wrong_usage(place, capsys, mapping):
    (place / "map.yaml").write_text(mapping)
    assert main(["compare", "-i", "compare.json", "-o", "out", "-lm", "map.yaml"]) == 2
    assert "the mapping file has the value 'map.yaml'" in capsys.readouterr().err


DUMPS = ["[1]", "{}", '{"task": "structure", "data": {}}', "\udcff"]
DUMPS += ['{"task": "tensor", "data": {"a": {"output": []}}}']


@pytest.mark.parametrize("content", DUMPS)
def test_a_dump_that_can_not_be_read_fails_the_job_and_leaves_no_result(place, capsys, content):
    (place / "run/step0/rank0/dump.json").write_bytes(content.encode(errors="surrogateescape"))
    assert main(["compare", "-i", "compare.json", "-o", "out"]) == 1
    error = capsys.readouterr().err
    assert ("dump.json" in error or "in common" in error, error.count("\n")) == (True, 1)
    assert [*place.glob("out/*"), *place.glob("out/.*")] == []

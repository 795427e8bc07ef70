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
    (tmp_path / "compare.json").write_text(
        json.dumps(
            {
                "npu_path": "run/step0/rank0/dump.json",
                "bench_path": "golden/step0/rank0/dump.json",
                "stack_path": "run/step0/rank0/stack.json",
                "is_print_compare_log": False,
            }
        )
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_answer_is_the_last_line_and_the_files_stand_in_the_folder(place, capsys):
    assert main(["compare", "-i", "compare.json", "-o", "out"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith(
        "The first wrong operator is Mint.add.0.forward: its 3 inputs agree bit for bit and output.0 differs in 1 of "
        "64 elements, first at index [1, 2]: "
    )
    names = sorted(path.name for path in (place / "out").iterdir())
    assert [re.sub(r"\d{14}", "T", name) for name in names] == ["compare_result_T.csv", "compare_result_T.html"]
    header = (place / "out" / names[0]).read_text().splitlines()[0]
    assert header.endswith("Accuracy Reached or Not,Err_message,NPU_Stack_Info,Data_name,Difference,Bound,Answer")
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
    ("change", "sentence"),
    [
        ({"npu_pth": "x"}, "a key of compare.json has the value 'npu_pth'"),
        ({"bench_path": None}, "bench_path has the value None"),
        (
            {"npu_path": "nowhere"},
            "npu_path has the value 'nowhere', which is not valid: there is nothing at that path",
        ),
        ({"npu_path": 7}, "npu_path has the value 7"),
        ({"is_print_compare_log": "yes"}, "true or false"),
        ({"npu_path": "golden/step0/rank0/dump_tensor_data"}, "a dump.json, or a folder that holds one, is needed"),
    ],
)
def test_a_wrong_compare_json_is_wrong_usage(place, capsys, change, sentence):
    content = json.loads((place / "compare.json").read_text()) | change
    (place / "compare.json").write_text(json.dumps(content))
    assert main(["compare", "-i", "compare.json", "-o", "out"]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["-i", "nowhere.json"],
        ["-i", "compare.json", "-tp", "run"],
        ["-tp", "run"],
        ["-i", "run/step0/rank0/dump.json"],
        ["-i", "compare.json", "-lm", "nowhere.yaml"],
        ["--gradients", "-tp", "run"],
        ["-i", "compare.json", "-o", "compare.json"],
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(place, capsys, arguments):
    assert main(["compare", *arguments]) == 2
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


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"task": "tensor", "data": {', "is not valid JSON"),
        ("[1]", "is no dump: an object is needed"),
        ("{}", "is no dump"),
        ('{"task": "structure", "data": {}}', "holds no data of any operator"),
        ("\udcff", "is not UTF-8 text"),
        ('{"task": "tensor", "data": {"Mint.other.0.forward": {"output": []}}}', "have no call in common"),
    ],
)
def test_a_dump_that_can_not_be_read_fails_the_job_and_leaves_no_result(place, capsys, content, sentence):
    (place / "run/step0/rank0/dump.json").write_bytes(content.encode(errors="surrogateescape"))
    assert main(["compare", "-i", "compare.json", "-o", "out"]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not list(place.glob("out/*"))
    assert not list(place.glob("out/.*"))

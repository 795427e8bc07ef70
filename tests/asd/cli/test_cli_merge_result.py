"""`asd compare --merge`: the results of several ranks side by side."""

import csv

import pytest

from asd.cli import main
from tests.asd.dumps import dumps


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The results of two ranks; in rank 1 an output is off by 5."""
    for rank in range(2):
        arrays = dumps.golden_arrays()
        dumps.write_network(tmp_path / f"golden/step0/rank{rank}", arrays)
        arrays["a"] = arrays["a"] + 5 * rank
        dumps.write_network(tmp_path / f"run/step0/rank{rank}", arrays)
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "-tp", "run", "-gp", "golden", "-o", "out"]) == 0
    return tmp_path


def test_each_column_of_each_rank_is_a_column_and_the_older_name_says_its_new_one(results, capsys):
    (results / "merge.yaml").write_text("api: [Mint.add.0.forward]\ncompare_index: [Cosine, MaxAbsErr]\n")
    capsys.readouterr()
    assert main(["merge_result", "--input_dir", "out", "--output_dir", "merged", "-config", "merge.yaml"]) == 0
    assert capsys.readouterr().err == (
        "asd: 'merge_result' is now 'compare --merge'; the old name goes with the next release.\n"
    )
    with next((results / "merged").glob("multi_ranks_compare_merge_*.csv")).open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["NPU Name", "Cosine rank0", "Cosine rank1", "MaxAbsErr rank0", "MaxAbsErr rank1"]
    assert rows[1] == ["Mint.add.0.forward.input.0", "1.0", "1.0", "0.0", "0.0"]
    assert rows[-1][:1] + rows[-1][3:4] == ["Mint.add.0.forward.output.0", "0.0"]
    assert float(rows[-1][4]) == pytest.approx(5)


@pytest.mark.parametrize(
    ("config", "code", "sentence"),
    [
        ("compare_index: []", 2, "are needed, and no others"),
        ("compare_index: [7]", 2, "lists of names"),
        ("compare_index: [Nothing]", 1, "has no column 'Nothing'"),
    ],
)
def test_a_wrong_setting_is_one_sentence(results, capsys, config, code, sentence):
    (results / "merge.yaml").write_text(config)
    capsys.readouterr()
    assert main(["compare", "--merge", "-i", "out", "-o", "merged", "-config", "merge.yaml"]) == code
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (results / "merged").exists()

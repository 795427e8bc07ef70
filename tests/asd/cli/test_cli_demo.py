"""`asd demo`, as far as it goes without a training: what it refuses, and that it deletes nobody's files."""

import pytest

from asd.cli import main


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--steps", "19"], "--steps has the value 19, which is not valid: valid is a number from 20 on."),
        (["--steps", "many"], "argument --steps: invalid int value: 'many'; see `asd demo --help`."),
        (["--mode", "eager"], "argument --mode: invalid choice: 'eager' (choose from "),
        (["--fault", "flip"], "fault has the value 'flip', which is not valid: valid is such as gradient:"),
        (
            ["--fault", "gradient:norm:flip=30:step=1"],
            "--fault has the value 'gradient:norm:flip=30:step=1', which is not valid: valid is a fault whose step is "
            "from 2 to 60, see --steps.",
        ),
        (["--step", "30"], "unrecognized arguments: --step 30; see `asd demo --help`."),
    ],
)
def test_a_wrong_option_ends_with_one_sentence_and_code_2_and_leaves_nothing(capsys, tmp_path, options, sentence):
    assert main(["demo", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"asd: {sentence}")
    assert err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_folder_with_files_of_the_user_is_refused_and_kept(capsys, tmp_path):
    (tmp_path / "file").write_text("years of work")
    assert main(["demo", "--out", "file"]) in (1, 2)
    err = capsys.readouterr().err
    assert (err[:5], "file" in err, err.count("\n")) == ("asd: ", True, 1)
    assert (tmp_path / "file").read_text() == "years of work"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert main(["demo", "--out", "mine"]) == 2
    assert capsys.readouterr().err == (
        "asd: --out has the value 'mine', which is not valid: valid is a new or empty folder, or one that an earlier "
        "demo left.\n"
    )
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"

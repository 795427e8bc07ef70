"""`asd demo`, as far as it goes without a training: what it refuses, and that it deletes nobody's files."""

from asd.cli import main


def test_a_folder_with_files_of_the_user_is_refused_and_kept(capsys, tmp_path):
    (tmp_path / "file").write_text("years of work")
    assert main(["demo", "--out", "file"]) in (1, 2)
    err = capsys.readouterr().err
    assert (err[:5], "file" in err, err.count("\n")) == ("asd: ", True, 1)
    assert (tmp_path / "file").read_text() == "years of work"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert main(["demo", "--out", "mine"]) == 2
    assert capsys.readouterr().err.startswith("asd: --out has the value 'mine'")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"

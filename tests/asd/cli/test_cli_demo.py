"""`asd demo`, as far as it goes without a training: what it refuses, and that it deletes nobody's files."""

from asd.cli import main


def test_a_folder_with_files_of_the_user_is_refused_and_kept(capsys, tmp_path):
    (tmp_path / "mine").mkdir()
    for out, file in (("file", tmp_path / "file"), ("mine", tmp_path / "mine" / "thesis.txt")):
        file.write_text("years of work")
        assert main(["demo", "--out", out]) in (1, 2)
        err = capsys.readouterr().err
        assert (err[:5], out in err, err.count("\n")) == ("asd: ", True, 1)
        assert file.read_text() == "years of work"

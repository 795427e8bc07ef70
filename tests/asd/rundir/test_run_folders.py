"""Which folders of runs are found where many may make folders."""

import os

import pytest

from asd.rundir import folders
from asd.rundir.folders import RunFolders
from asd.rundir.names import event_file


@pytest.mark.parametrize("name", ["z", "z/z", "z/z/z"])
def test_nobody_who_makes_many_folders_hides_a_run_that_is_known(tmp_path, monkeypatch, name):
    monkeypatch.setattr(folders, "_MOST", 20)
    run = tmp_path / name
    run.mkdir(parents=True)
    event_file(run, 0).touch()
    found = RunFolders([tmp_path])
    assert run in found.look()
    for number in range(50):
        (tmp_path / f"a{number}").mkdir()
    os.utime(tmp_path)
    assert run in found.look()
    assert str(tmp_path) in found.unreadable
    assert event_file(run, 0) in found.event_files()


def test_a_known_run_whose_folder_became_a_link_is_not_followed(tmp_path):
    run, elsewhere = tmp_path / "runs" / "a" / "b", tmp_path / "elsewhere"
    run.mkdir(parents=True)
    event_file(run, 0).touch()
    found = RunFolders([tmp_path / "runs"])
    assert run in found.look()
    run.parent.rename(elsewhere)
    run.parent.symlink_to(elsewhere)
    assert found.look() == [tmp_path / "runs"]

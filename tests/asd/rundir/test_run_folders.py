"""Which folders of runs are found where many may make folders."""

import os
from pathlib import Path

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


def test_a_folder_that_its_owner_closed_hides_no_other_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    runs = [Path("runs", team, "job") for team in ("a", "b")]
    for run in runs:
        run.mkdir(parents=True)
        event_file(run, 0).touch()
    found, user = RunFolders([Path("runs")]), os.geteuid()
    assert {*runs} <= {*found.look()}
    runs[0].parent.chmod(0o000)
    os.seteuid(user or 65534)  # root may look into it
    try:
        assert {*runs} <= {*found.look()}
    finally:
        os.seteuid(user)
    assert str(runs[0]) in found.unreadable

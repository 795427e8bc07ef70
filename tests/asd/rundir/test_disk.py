"""Locks, and files that are whole or not there."""

import errno
import os
import subprocess
import sys
import threading
import time

import pytest

from asd.rundir import disk
from asd.rundir.disk import HeldError, lock, take_lock, whole_file, write_whole

ASK = """
import sys
from pathlib import Path
from asd.rundir.disk import HeldError, take_lock
try:
    take_lock(Path(sys.argv[1]), "other", by_process=sys.argv[2] == "True")
    print("taken")
except HeldError as error:
    print(error.owner)
"""


def asked(path, by_process):
    command = [sys.executable, "-c", ASK, path, str(by_process)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("by_process", [False, True])
def test_another_process_learns_who_holds_a_lock_until_it_is_given_back(tmp_path, by_process):
    path = tmp_path / "lock"
    path.write_text("somebody with a long name, long ago")
    held = take_lock(path, "process 7", by_process=by_process)
    assert asked(path, by_process) == "process 7"
    os.close(held)
    assert asked(path, by_process) == "taken"
    assert path.read_text() == "other"


def test_who_waits_gets_the_lock_when_it_is_given_back_and_not_before(tmp_path):
    held = take_lock(tmp_path / "lock")
    threading.Timer(0.2, os.close, [held]).start()
    began = time.monotonic()
    with (tmp_path / "lock").open() as file:
        assert not lock(file.fileno(), 0.01)
        assert lock(file.fileno(), 20)
    assert 0.15 < time.monotonic() - began < 15


def test_no_descriptor_is_left_of_a_lock_that_was_not_had(tmp_path, monkeypatch):
    held = take_lock(tmp_path / "lock")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(HeldError, match="^another$"):  # who has not said a name
        take_lock(tmp_path / "lock")

    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(disk.fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks available"):
        take_lock(tmp_path / "lock")
    with pytest.raises(OSError, match="No locks available"):
        lock(held)
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(held)


def test_a_folder_is_not_synced_where_its_file_system_cannot_do_it_and_a_file_is_an_error_there(tmp_path):
    disk.sync(tmp_path / "/proc/self")
    with pytest.raises(OSError, match="Invalid argument"):
        disk.sync(tmp_path / "/proc/self/stat")


def test_a_file_takes_the_place_of_another_only_where_it_may(tmp_path):
    path = tmp_path / "a"
    write_whole(path, "old")
    with pytest.raises(FileExistsError, match="'.*/a'$"), whole_file(path, replace=False) as file:
        file.write(b"new")
    assert path.read_text() == "old"
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]


def test_a_block_that_fails_leaves_what_was_there_and_its_own_error(tmp_path):
    path = tmp_path / "a"
    write_whole(path, "old")

    def fail():
        with whole_file(path) as file:
            file.write(b"half")
            os.stat("/nowhere/at/all")

    with pytest.raises(FileNotFoundError, match="'/nowhere/at/all'"):
        fail()
    assert (os.listdir(tmp_path), path.read_text()) == (["a"], "old")


def test_a_folder_that_is_not_there_is_an_error_of_the_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'.*/gone/a'$"), whole_file(tmp_path / "gone" / "a"):
        pass

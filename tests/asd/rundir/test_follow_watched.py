"""Following files of which the kernel tells which were written: the same lines, and no look at what stands still."""

import contextlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from asd.rundir.folders import RunFolders
from asd.rundir.follow import Follower
from asd.rundir.following import folder_watch
from asd.rundir.following.folder_watch import FolderWatch
from asd.rundir.following.inotify import Inotify
from asd.rundir.following.local_disk import is_local

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


def add(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


class Clock:
    def __init__(self):
        self.now = 1e9

    def __call__(self):
        return self.now


class Job:
    """Run folders below a root, and a follower of their logs."""

    def __init__(self, root):
        self.root = root
        self.clock = Clock()
        self.folders = RunFolders([root], self.clock)
        self.asked = []
        self.follower = Follower(self.folders.event_files, changed=self.changed)

    def changed(self):
        self.asked.append(self.folders.changed())
        return self.asked[-1]

    def texts(self):
        found = []
        while lines := self.follower.poll():
            found += [line.text for line in lines]
        return found

    @property
    def was_told(self):
        """Whether the last round was one through what the kernel told of."""
        return self.asked[-1] is not None


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path / "runs")
    for rank in range(20):
        add(job.root / "job1" / f"events-rank{rank}.jsonl", f"{rank}")
    assert len(job.texts()) == 20
    job.texts()
    assert job.was_told
    return job


@contextlib.contextmanager
def looks_below(root, *names):
    """What these functions of `os` are asked about files below `root`."""
    looks = []

    def noting(real):
        def note(path, *args, **options):
            if str(path).startswith(str(root)):
                looks.append(str(path))
            return real(path, *args, **options)

        return note

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(os, name, noting(getattr(os, name)))
        yield looks


def test_a_poll_without_news_looks_at_no_file(job):
    with looks_below(job.root, "stat", "open", "scandir") as looks:
        job.texts()
        assert set(looks) == {str(job.root)}  # whether that is still the same folder
        looks.clear()
        log = job.root / "job1" / "events-rank7.jsonl"
        add(log, "new")
        assert job.texts() == ["new"]
        assert set(looks) == {str(job.root), str(log), str(log.parent)}  # the last by `add`


def test_what_is_no_log_and_statuses_that_come_anew_are_no_news(job):
    status = job.root / "job1" / "status-rank0.json"
    status.write_text("{}")
    job.texts()
    assert not job.was_told
    job.texts()
    for number in range(3):
        beside = job.root / "job1" / ".status-rank0.json.new"
        beside.write_text("{}" * number)
        beside.replace(status)
        add(job.root / "job1" / "values-rank0.jsonl", "1")
        assert job.texts() == []
        assert job.was_told
    assert job.folders.status_files(job.root / "job1") == [status]


def test_new_logs_and_new_jobs_are_found(job):
    add(job.root / "job1" / "events-rank20.jsonl", "rank 20")
    assert job.texts() == ["rank 20"]
    add(job.root / "team" / "job2" / "events-rank0.jsonl", "job 2")
    assert job.texts() == ["job 2"]
    add(job.root / "team" / "job2" / "events-rank0.jsonl", "more")
    assert job.texts() == ["more"]
    assert job.was_told


def test_rotation_loses_nothing(job):
    log = job.root / "job1" / "events-rank3.jsonl"
    for number in range(5):
        add(log, f"{number} before")
        if log.with_name("events-rank3.jsonl.1").exists():
            log.with_name("events-rank3.jsonl.1").replace(log.with_name("events-rank3.jsonl.2"))
        log.replace(log.with_name("events-rank3.jsonl.1"))
        add(log, f"{number} after")
        assert job.texts() == [f"{number} before", f"{number} after"]


def test_a_copy_and_its_original_stay_known_as_such(job):
    log = job.root / "job1" / "events-rank3.jsonl"
    shutil.copy(log, log.with_name("events-rank3.jsonl.1"))
    add(log, "more")
    assert job.texts() == ["more"]
    add(log, "much more")
    assert job.texts() == ["much more"]
    os.truncate(log, 0)
    add(log, "anew")
    assert job.texts() == ["anew"]


def test_a_folder_that_was_renamed_is_watched_under_its_new_name(job):
    (job.root / "job1").rename(job.root / "done")
    add(job.root / "done" / "events-rank0.jsonl", "one")
    assert job.texts() == ["one"]
    add(job.root / "done" / "events-rank0.jsonl", "two")
    assert job.texts() == ["two"]
    assert job.was_told


def test_folders_in_a_folder_that_was_renamed_are_watched_too(tmp_path):
    job = Job(tmp_path / "runs")
    add(job.root / "team" / "job1" / "events-rank0.jsonl", "one")
    assert job.texts() == ["one"]
    (job.root / "team").rename(job.root / "group")
    assert job.texts() == []
    add(job.root / "group" / "job1" / "events-rank0.jsonl", "two")
    assert job.texts() == ["two"]
    assert job.was_told


def test_a_root_that_is_another_folder_by_now_is_followed(job):
    job.root.rename(job.root.with_name("old"))
    add(job.root / "job9" / "events-rank0.jsonl", "other")
    assert job.texts() == ["other"]
    add(job.root / "job9" / "events-rank0.jsonl", "more")
    assert job.texts() == ["more"]


def test_when_the_kernel_has_lost_notices_all_files_are_looked_at(job):
    lines = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 2 + 100
    logs = [job.root / "job1" / f"events-rank{rank}.jsonl" for rank in (0, 1)]
    with logs[0].open("a", buffering=1) as one, logs[1].open("a", buffering=1) as other:
        for _ in range(lines):  # in turns, for the same notice twice in a row counts once
            one.write("1\n")
            other.write("2\n")
    add(job.root / "job1" / "events-rank5.jsonl", "told no more")
    found = job.texts()
    assert len(found) == 2 * lines + 1
    assert "told no more" in found


def test_now_and_then_all_is_looked_at_whatever_is_told(job):
    job.clock.now += 29
    job.texts()
    assert job.was_told
    job.clock.now += 2
    looked = []
    read = job.folders._read
    job.folders._read = lambda folder: looked.append(folder) or read(folder)
    job.texts()
    assert sorted(looked) == [job.root, job.root / "job1"]


@pytest.mark.parametrize("why", ["no inotify", "network"])
def test_without_notices_files_are_polled(tmp_path, monkeypatch, why):
    def refuse():
        raise OSError(24, "Too many open files")

    if why == "no inotify":
        monkeypatch.setattr(folder_watch, "Inotify", refuse)
    else:
        monkeypatch.setattr(folder_watch.FolderWatch.__init__, "__defaults__", (lambda device: False,))
    job = Job(tmp_path / "runs")
    for number in range(4):
        add(job.root / f"job{number}" / "events-rank0.jsonl", f"{number}")
        assert job.texts() == [f"{number}"]
        assert not job.was_told
        add(job.root / "job0" / "events-rank0.jsonl", "more")
        assert job.texts() == ["more"]
        assert not job.was_told


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("ext4", True), ("xfs", True), ("tmpfs", True), ("overlay", True), ("nfs4", False), ("lustre", False),
     ("fuse.ceph", False), ("9p", False), ("", False)],
)  # fmt: skip
def test_a_network_file_system_and_one_that_is_not_known_are_not_local(tmp_path, kind, expected):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 0:5 / /proc rw shared:2 - proc proc rw\n"
        f"36 35 98:3 /root /mnt rw,noatime master:1 - {kind} /dev/root rw\n"
        "37 35 98:30 / /else rw - ext4 /dev/sdb rw\n"
    )
    assert is_local(os.makedev(98, 3), mounts) is expected
    assert not is_local(os.makedev(1, 1), mounts)
    assert not is_local(os.makedev(98, 3), tmp_path / "none")


def test_what_a_kernel_mounted_twice_as_two_kinds_is_not_local(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text("1 1 98:3 / /a rw - ext4 /dev/a rw\n2 1 98:3 / /b rw - nfs host:/b rw\n")
    assert not is_local(os.makedev(98, 3), mounts)


def test_a_watch_that_is_forgotten_leaves_no_descriptor(tmp_path):
    watch = Inotify()
    watch.add(tmp_path)
    (tmp_path / "new").touch()
    assert [(notice.name, notice.came_or_went) for notice in watch.read()] == [("new", True)]
    with pytest.raises(OSError, match="Not a directory"):
        watch.add(tmp_path / "new")
    descriptor = watch._descriptor
    os.fstat(descriptor)
    del watch
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_catching_up_opens_each_file_about_once_however_many_polls_it_takes(tmp_path):
    paths = [tmp_path / f"{number}" for number in range(100)]
    for path in paths:
        add(path, f"{path.name} one", "two")
    follower = Follower(lambda: paths)
    polls = 0
    with looks_below(tmp_path, "open") as opened:
        while lines := follower.poll(5):
            polls += 1
            assert len(lines) == 5
    assert polls == 40
    assert len(opened) <= 2 * len(paths) + polls


def _rotations():
    """The state machine of `test_follow.py`."""
    spec = importlib.util.spec_from_file_location("_follow_rotations", Path(__file__).with_name("test_follow.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_follow = _rotations()


class _WatchedFolder(_follow.Folder):
    def new(self, state=None, **options):
        watch = FolderWatch(lambda folder, name: True)

        def changed():
            was_watched = bool(watch._folders)
            is_watched = watch.add(self.path)
            news = watch.news()
            return news.written if was_watched and is_watched and not news.names else None

        return super().new(state, changed=changed, **options)


class _WatchedRotations(_follow.Rotations):
    def __init__(self):
        super().__init__()
        shutil.rmtree(self.folder.path)
        self.folder.path.mkdir()
        self.folder = _WatchedFolder(self.folder.path)


_WatchedRotations.TestCase.settings = _follow.Rotations.TestCase.settings
TestWatchedRotations = _WatchedRotations.TestCase

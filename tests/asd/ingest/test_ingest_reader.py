"""Following logs: every alarm once, whatever happens to the files, to the event log and to the process."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.exporters.run_files.event_log import EventLog, read_events
from asd.ingest.alarms import Alarms
from asd.ingest.log_files import LogFiles, default_places
from asd.ingest.log_line import device_of_path, rank_of_path
from asd.ingest.reader import Ingest


def alarm(step):
    return (
        f"[ERROR] AICPU(1,aicpu_scheduler):2025-02-25-18:43:29.395.610 [silent_check_v3.cc:250][ComputeL1Error]"
        f"[tid:2]SilentCheckV3 L1 Error:val = [nan], max = [nan], avg=[5.7e-08], step=[{step}], c_thresh_l1 = [1e6].\n"
    )


class World:
    """A folder of logs, a folder of the run, and one reader after another."""

    def __init__(self, folder):
        self.logs, self.run_dir = folder / "logs", folder / "run"
        self.logs.mkdir()
        self.log = self.logs / "device-1.log"
        self.events = self.run_dir / "events-ingest.jsonl"
        self.cursor = self.run_dir / "ingest.cursor.json"
        self.fails = 0

    def sink(self, event):
        if self.fails:
            self.fails -= 1
            raise OSError(28, "No space left on device", str(self.events))
        EventLog(self.events)(event)

    def reader(self):
        return Ingest(LogFiles([str(self.logs)]), Alarms("node7"), self.sink, self.run_dir)

    def read(self, reader=None):
        reader = reader or self.reader()
        while reader.step():
            pass
        return reader

    def steps(self):
        return [event.step for event in read_events(self.events)] if self.events.exists() else []

    def append(self, *texts):
        with self.log.open("a") as file:
            file.write("".join(texts))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_lost_cursor_doubles_nothing_and_what_a_kill_tore_is_written_again(world):
    world.append(*(alarm(step) for step in range(50)))
    world.read()
    world.cursor.unlink()
    world.events.write_bytes(world.events.read_bytes()[:-20])
    world.read()
    assert world.steps() == list(range(50))


def test_nothing_is_lost_while_the_event_log_cannot_be_written(world):
    world.append(alarm(1), alarm(2), alarm(3))
    reader = world.reader()
    world.fails = 2
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            reader.step()
        assert not world.cursor.exists()
    reader.step()
    assert world.steps() == [1, 2, 3]


def test_a_cursor_that_cannot_be_saved_is_saved_later(world):
    world.append(alarm(1))
    reader = world.reader()
    world.cursor.mkdir(parents=True)
    with pytest.raises(OSError, match="cursor"):
        reader.step()
    world.cursor.rmdir()
    reader.step()
    assert world.cursor.is_file()
    assert world.steps() == [1]


def test_a_thousand_polls_of_quiet_logs_write_nothing(world):
    world.append(alarm(1))
    os.utime(world.log, (1e9, 1e9))
    reader = world.read()
    before = world.cursor.stat()
    for _ in range(1000):
        assert not reader.step()
    assert world.cursor.stat() == before


class Story:
    """What may happen to logs and readers."""

    def __init__(self, world):
        self.world = world
        self.reader = world.reader()
        self.written = 0

    def append(self):
        self.written += 1
        self.world.append(f"noise {self.written}\n", alarm(self.written))

    def rename(self):
        if self.world.log.exists():
            self.world.log.rename(self.world.logs / f"device-1.log.{self.written}")
            self.append()

    def copy(self):
        """Copies the log and empties it, as copytruncate of logrotate does."""
        if self.world.log.exists():
            shutil.copy(self.world.log, self.world.logs / f"device-1.log.{self.written}")
            self.world.log.write_text("")
            self.append()

    def read(self):
        self.reader.step(limit=2)

    def restart(self):
        self.reader = self.world.reader()

    def crash(self):
        """Another reader gets as far as writing all events, but not to saving how far it read."""
        before = self.world.cursor.read_bytes() if self.world.cursor.exists() else None
        self.world.read()
        self.world.cursor.write_bytes(before) if before else self.world.cursor.unlink(missing_ok=True)
        self.restart()


@given(st.lists(st.sampled_from(["append", "rename", "copy", "read", "restart", "crash"]), max_size=25))
def test_each_alarm_is_one_event_through_any_rotation_and_restart(tmp_path_factory, what):
    story = Story(World(tmp_path_factory.mktemp("world")))
    for action in what:
        getattr(story, action)()
    story.world.read(story.reader)
    story.world.read()
    assert sorted(story.world.steps()) == list(range(1, story.written + 1))


def test_of_a_folder_everything_with_the_name_of_a_log_is_listed(tmp_path):
    named = "debug/device-0/device-1_20250225184310213.log debug/plog/plog-1_2.log.1 rank_0/info.log"
    logs = [*named.split(), "a.out", "messages", "syslog-20250826", "1/rank.0/stdout", "x.txt"]
    for name in [*logs, "model.ckpt", "a.jsonl", "b.log.gz", ".hidden/x.log"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listed = LogFiles([str(tmp_path)])()
    assert sorted(str(path.relative_to(tmp_path)) for path in listed) == sorted(logs)


def test_a_folder_that_cant_be_listed_is_named_and_the_others_are_listed(tmp_path, monkeypatch):
    for name in ("closed/x.log", "open/y.log"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    files, scandir = LogFiles([str(tmp_path)]), os.scandir

    def guarded(path):
        if os.path.basename(path) == "closed":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", guarded)
        assert files() == [tmp_path / "open" / "y.log"]
        assert files.unreadable == {str(tmp_path / "closed"): "Permission denied"}
    assert len(files()) == 2
    assert files.unreadable == {}


@pytest.mark.parametrize("place", ["a/x.log", "**/x*.log"])
def test_a_file_or_a_pattern_lists_new_and_rotated_files_and_no_packed_ones(tmp_path, place):
    files = LogFiles([str(tmp_path / place)])
    assert (files(), files.missing()) == ([], files.places)
    (tmp_path / "a").mkdir()
    for name in ("x.log", "x.log.1", "x.log.2", "x.log.10", "x.log.3.gz", "y.log", "x.log.swp"):
        (tmp_path / "a" / name).touch()
    assert [path.name for path in files()] == ["x.log", "x.log.1", "x.log.10", "x.log.2"]
    assert files.missing() == []


def test_the_default_places_follow_the_environment(tmp_path):
    environ = {"ASCEND_PROCESS_LOG_PATH": str(tmp_path / "p"), "ASCEND_WORK_PATH": str(tmp_path / "w")}
    logs = [
        "p/debug/device-0/device-1_2.log",
        "w/log/debug/device-1/device-1_2.log",
        "h/ascend/log/run/plog/plog-1_2.log",
    ]
    for name in (*logs, "h/ascend/log/debug/device-app-1/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    listed = LogFiles([place for place in default_places(environ, tmp_path / "h") if place.startswith("/")])()
    assert [str(path.relative_to(tmp_path)) for path in listed] == logs


@pytest.mark.parametrize(
    ("path", "device", "rank"),
    [
        ("/a/debug/device-12/device-305322_20250225184310213.log", "Ascend:12", None),
        ("device-0/x.log", "Ascend:0", None),
        ("/a/device-305322_20250225184310213.log", "", None),
        ("/run/worker_3.log", "", 3),
        ("/run/worker_3.log.1", "", 3),
        ("/run/worker_3.log-20261129", "", 3),
        ("/pods/worker-3/device-1/x.log", "Ascend:1", None),
        ("/log/rank_7/info.log", "", 7),
        ("/log/1/rank.07/stdout", "", 7),
        ("/log/scheduler.log", "", None),
    ],
)
def test_device_and_rank_are_told_by_the_path(path, device, rank):
    assert (device_of_path(Path(path)), rank_of_path(Path(path))) == (device, rank)

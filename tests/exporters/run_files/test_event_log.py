"""The event log: one line per event, whatever happens to the process or the disk."""

import errno
import fcntl
import multiprocessing
import os
import resource
import shutil
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from asd import Config, Level
from asd.exporters.run_files import event_log as module
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading
from asd.rundir.names import event_files
from tests.support.events import event_maker

ORIGIN = Origin("run1", 3, "node7", "CPU:0")


event = event_maker(**asdict(ORIGIN), time=0.0)


@pytest.fixture
def log(tmp_path):
    return EventLog(tmp_path / "new" / "folder" / "events-rank3.jsonl")


def test_each_event_is_one_line_in_the_order_they_came(log):
    events = [event(1), event(2, reason="two\nlines, 特征值"), event(3, value=float("inf"), limits=())]
    for each in events:
        log(each)
    assert log.path.read_bytes().count(b"\n") == 3
    assert read_events(log.path) == events


@pytest.mark.parametrize("kept", [1, 2, 50, -3, -2, -1])
def test_a_line_torn_by_a_kill_costs_that_event_only(log, kept):
    log(event(1))
    log(event(2))
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(lines[0] + lines[1][:kept])
    assert [each.step for each in read_events(log.path)] == [1]
    log(event(3))
    log(event(4))
    complete = [2] if kept == -1 else []  # only the end of the line was missing
    assert [each.step for each in read_events(log.path)] == [1, *complete, 3, 4]


@pytest.mark.parametrize(
    ("level", "synced"), [(Level.ERROR, 1), (Level.WARNING, 0), (Level.NORMAL, 0)], ids=lambda value: str(value)
)
def test_first_level_events_are_synced_to_the_disk_and_others_cost_no_sync(log, monkeypatch, level, synced):
    log(event(1, level=Level.NORMAL))
    calls = []
    monkeypatch.setattr(module.os, "fsync", lambda descriptor: calls.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    log(event(level=level))
    assert calls == [str(log.path)] * synced


def test_a_new_file_and_its_new_folders_are_synced_too(log, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(module.os, "fsync", lambda descriptor: calls.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    log(event(level=Level.NORMAL))
    assert calls == [str(log.path.parent), str(tmp_path / "new"), str(tmp_path)]


def lines(*paths):
    """The steps in each file."""
    return [[each.step for each in read_events(path)] for path in paths]


def rotating(path, keep=4):
    """A log that takes two events a file."""
    return EventLog(path, max_bytes=2 * len(event(1).to_json()) + 2, keep=keep)


def test_a_file_that_would_grow_too_large_is_rotated_and_the_oldest_is_deleted(tmp_path):
    log = rotating(tmp_path / "events-rank3.jsonl", keep=2)
    for step in range(1, 10):
        log(event(step))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"events-rank3.jsonl{age}" for age in ("", ".1", ".2")]
    assert lines(*event_files(tmp_path)) == [[5, 6], [7, 8], [9]]


@pytest.mark.parametrize("what", ["file", "folder", "stale file"])
def test_what_was_deleted_is_made_again(log, what):
    log(event(1))
    if what == "stale file":  # after a restart of an NFS server every call on the descriptor may fail, once
        os.dup2(os.open(log.path, os.O_PATH), log._descriptor)
        with pytest.raises(OSError, match=str(log.path)):
            log(event(0))
    log.path.unlink() if what != "folder" else shutil.rmtree(log.path.parent)
    log(event(2))
    assert lines(log.path) == [[2]]


def test_no_descriptor_is_left_behind(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    log = rotating(tmp_path / "e.jsonl")
    for step in range(20):
        log(event(step))
    del log
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_file_that_can_not_be_rotated_is_written_on(tmp_path):
    log = rotating(tmp_path / "e.jsonl", keep=1)
    (tmp_path / "e.jsonl.1").mkdir()
    for step in range(5):
        log(event(step))
    assert lines(log.path) == [[0, 1, 2, 3, 4]]


def test_a_descriptor_that_a_child_got_for_another_file_is_left_alone(log, tmp_path):
    log(event(1))
    other = tmp_path / "other"
    pid = os.fork()
    if pid == 0:
        # As programs do that become daemons: they close everything, and the numbers are given out again.
        taken = log._descriptor
        descriptor = os.open(other, os.O_RDWR | os.O_CREAT)
        os.dup2(descriptor, taken)
        log(event(2))
        os.write(taken, b"mine")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert other.read_bytes() == b"mine"
    assert lines(log.path) == [[1, 2]]


def test_a_stopped_process_that_holds_the_lock_holds_up_nobody_for_long(log, monkeypatch):
    log(event(1))
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    with log.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        log(event(2))
    assert lines(log.path) == [[1, 2]]


def test_a_file_system_without_locks_will_do(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    log = rotating(tmp_path / "events-rank3.jsonl")
    for step in range(1, 4):
        log(event(step))
    assert lines(*event_files(tmp_path)) == [[1, 2], [3]]


def test_a_folder_that_can_not_be_written_is_an_os_error_that_ends_no_training():
    log = EventLog(Path("/proc/no/such/events.jsonl"))  # root too may make no folder there
    with pytest.raises(OSError, match="/proc/no"):
        log(event())
    kept = []
    watch = Monitor(Config(protection="document", enable=1), ORIGIN, [log, kept.append])
    assert watch.judge(1, [Reading("a", 2e6)]).fatal is kept[0]
    assert kept[1].reason.startswith("an event can't be handed")


def write_on_a_full_disk(path, limit, results):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        EventLog(path)(event(2))
    except OSError as error:
        results.put(error.strerror)


@pytest.mark.parametrize(("room", "reason"), [(0, "File too large"), (100, "No space left on device")])
def test_a_full_disk_is_an_os_error_and_later_events_are_read_again(log, room, reason):
    log(event(1))
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    limit = log.path.stat().st_size + room
    writer = context.Process(target=write_on_a_full_disk, args=(log.path, limit, results))
    writer.start()
    assert results.get(timeout=30) == reason
    writer.join(30)
    assert log.path.stat().st_size == limit
    log(event(3))
    assert [each.step for each in read_events(log.path)] == [1, 3]

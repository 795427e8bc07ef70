"""The status file: what a rank counted, for readers that come and go, on disks that are full."""

import errno
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from asd import Config
from asd.exporters.run_files.status_file import StatusFile, StatusFiles
from asd.judge.monitor import Monitor
from asd.judge.status import Status
from asd.origin import Origin
from asd.rules.reading import Reading
from asd.rundir import disk
from asd.rundir import names as run_dir
from tests.support.events import made_of

ORIGIN = Origin("run1", 3, "node7", "Ascend:3")
GOOD, BAD, DUBIOUS = Reading("a", 1.0), Reading("a", 2e6), Reading("a", 2e4)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sink(tmp_path, clock):
    return StatusFile(tmp_path / "new" / "folder" / "status-rank3.json", clock=clock)


def monitor_of(sink):
    return Monitor(Config(protection="document", enable=1), ORIGIN, [sink])


def read(sink):
    return Status.from_json(sink.path.read_text())


def test_it_is_written_before_the_first_step_and_after_the_last(sink):
    monitor = monitor_of(sink)
    monitor.begin()
    assert read(sink) == monitor.status
    assert (read(sink).active, read(sink).steps, read(sink).pid) == (True, 0, os.getpid())
    monitor.judge(1, [GOOD])
    monitor.end()
    assert read(sink) == monitor.status
    assert (read(sink).active, read(sink).steps) == (False, 1)
    later = monitor_of(StatusFile(sink.path))
    later.begin()
    assert read(sink) == later.status


def test_it_is_written_once_an_interval(sink, clock):
    monitor = monitor_of(sink)
    monitor.begin()
    seen = []
    for step in range(1, 8):
        clock.now += 0.4
        monitor.judge(step, [GOOD])
        seen.append(read(sink).step)
    assert seen == [0, 0, 3, 3, 3, 6, 6]


def test_a_first_level_anomaly_is_written_at_once_and_a_second_level_one_waits(sink):
    monitor = monitor_of(sink)
    monitor.begin()
    monitor.judge(1, [DUBIOUS])
    assert read(sink).anomalies == {"first": 0, "second": 0}
    monitor.judge(2, [BAD])
    assert read(sink).anomalies == {"first": 1, "second": 1}
    monitor.judge(3, [GOOD])
    assert read(sink).step == 2


def test_a_place_that_can_not_be_written_is_told_and_ends_no_training():
    sink = StatusFile(run_dir.status_file(Path("/proc/no/such"), 3))  # root too may make no folder there
    monitor = monitor_of(sink)
    monitor.begin()
    monitor.judge(1, [GOOD])
    assert monitor.status.dropped == {"StatusFile": 1}
    assert monitor.status.problems == 1


def test_what_a_full_disk_does_not_take_is_counted_and_written_once_there_is_room(sink, clock, monkeypatch):
    monitor = monitor_of(sink)
    monitor.begin()
    with monkeypatch.context() as full:
        full.setattr(disk.os, "replace", raises_no_space)
        clock.now += 1
        monitor.judge(1, [BAD])
    assert read(sink).step == 0
    assert monitor.status.dropped == {"StatusFile": 1}
    clock.now += 1
    monitor.judge(2, [GOOD])
    assert read(sink) == monitor.status
    assert sorted(path.name for path in sink.path.parent.iterdir()) == [".status-rank3.json.lock", "status-rank3.json"]


def raises_no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def status(rank=0, **changes):
    return made_of(Status, **{**asdict(ORIGIN), "rank": rank, **changes})


def put(folder, rank, text):
    run_dir.status_file(folder, rank).write_text(text)


def test_a_reader_finds_the_ranks_of_all_folders_and_awaits_the_missing_ones(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    files = StatusFiles([one, two])
    assert files.poll() == []
    for folder in (two, one):
        folder.mkdir()
        put(folder, 0, status(0, run=folder.name).to_json())
    put(one, 11, status(11).to_json())
    assert files.poll() == [status(0, run="one"), status(11), status(0, run="two")]
    assert files.unreadable == {}


@pytest.mark.parametrize("text", ["", "{", "null", '{"version": 1}', "\udcff", "x" * (16 * 1024 * 1024 + 1)])
def test_of_a_bad_file_the_last_good_status_stays_and_it_is_told_as_long_as_it_is_bad(tmp_path, text):
    files = StatusFiles([tmp_path])
    path = run_dir.status_file(tmp_path, 0)
    path.write_text(status(steps=1).to_json())
    put(tmp_path, 1, status(1).to_json())
    assert files.poll() == [status(steps=1), status(1)]
    path.write_bytes(text.encode(errors="surrogateescape"))
    for _ in range(2):
        assert files.poll() == [status(steps=1), status(1)]
        assert list(files.unreadable) == [str(path)]
    path.write_text(status(steps=2).to_json())
    assert files.poll() == [status(steps=2), status(1)]
    assert files.unreadable == {}


def test_a_folder_that_can_not_be_listed_hides_its_ranks_and_does_not_end_them(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    put(folder, 0, status().to_json())
    files = StatusFiles([folder])
    files.poll()
    folder.rename(tmp_path / "away")
    folder.symlink_to(folder)
    assert files.poll() == [status()]
    assert list(files.unreadable) == [str(folder)]


HOLDS = """
import sys
from pathlib import Path
from asd import Config
from asd.exporters.run_files.status_file import StatusFile
from asd.judge.monitor import Monitor
from asd.origin import Origin
watch = Monitor(Config(enable=1), Origin("run0", 3, "node1", "CPU:0"), [StatusFile(Path(sys.argv[1]))])
watch.begin()
print(watch.status.pid, flush=True)
sys.stdin.readline()
if sys.argv[2] == "ends":
    watch.end()
    print("ended", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["ends", "dies"])
def test_a_second_process_of_the_same_rank_is_told_who_the_other_is_and_leaves_its_file_alone(sink, clock, caplog, how):
    sink.path.parent.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(sink.path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        pid = int(other.stdout.readline())
        monitor = monitor_of(sink)
        monitor.begin()
        for step in (1, 2):
            clock.now += 2
            monitor.judge(step, [BAD])
        assert (read(sink).run, read(sink).pid) == ("run0", pid)
        (line,) = caplog.messages
        assert line.startswith(f"{sink.path} is written by process {pid} on node1, run run0; this one, process ")
        if how == "ends":
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "ended\n"
        else:
            other.kill()
            other.wait()
        clock.now += 2
        monitor.judge(3, [GOOD])
        assert (read(sink).run, read(sink).step) == ("run1", 3)
        other.kill()
    assert len(caplog.messages) == 1
    monitor.end()


def test_two_monitors_of_a_process_share_the_file_and_a_forked_worker_does_not_keep_it(tmp_path):
    path = tmp_path / "status-rank3.json"
    monitors = [monitor_of(StatusFile(path)) for _ in range(2)]
    for monitor in monitors:
        monitor.begin()
    worker = os.fork()
    if worker == 0:
        time.sleep(60)
        os._exit(0)

    def asked():
        with subprocess.Popen(
            [sys.executable, "-c", HOLDS, path, "dies"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            other.stdout.readline()
            return Status.from_json(path.read_text()).pid == other.pid

    try:
        assert not asked()
        monitors[0].end()
        assert not asked()
        monitors[1].end()
        assert asked()
    finally:
        os.kill(worker, 9)
        os.waitpid(worker, 0)

"""The event log: one line per event, whatever happens to the process or the disk."""

import multiprocessing
import os
import resource
import signal
from pathlib import Path

import pytest

from asd import Config, Event, Level, StateError
from asd.exporters import event_log as module
from asd.exporters.event_log import EventLog, open_event_log, read_events
from asd.monitor import Monitor, Origin
from asd.reading import Reading

ORIGIN = Origin("run1", 3, "node7", "CPU:0")


def event(step=1, **changes):
    fields = {
        **ORIGIN._asdict(), "step": step, "checkpoint": "a", "value": 2e6, "limits": (1e6,), "level": Level.ERROR,
        "kind": "anomaly", "rule": "threshold", "feature": "l2", "reason": "r", "refused": True, "time": 0.0,
    }  # fmt: skip
    return Event(**{**fields, **changes})


@pytest.fixture
def log(tmp_path):
    return EventLog(tmp_path / "new" / "folder" / "events-rank3.jsonl")


def test_each_event_is_one_line_in_the_order_they_came(log):
    events = [event(1), event(2, reason="two\nlines, 特征值"), event(3, value=float("inf"), limits=())]
    for each in events:
        log(each)
    assert log.path.read_bytes().count(b"\n") == 3
    assert read_events(log.path) == events


def test_no_folder_is_made_before_the_first_event(log):
    assert not log.path.parent.exists()


def test_each_rank_has_a_file_of_its_own_in_the_folder_of_the_run(tmp_path):
    log = open_event_log(Config(run_dir=str(tmp_path)), ORIGIN)
    assert log.path == tmp_path / "events-rank3.jsonl"


def test_a_second_run_appends(log):
    log(event(1))
    EventLog(log.path)(event(2))
    assert [each.step for each in read_events(log.path)] == [1, 2]


def append_many(path, rank, count):
    for step in range(count):
        EventLog(path)(event(step, rank=rank, reason="x" * (rank * 5000)))


def test_lines_of_several_processes_never_mix(log):
    start = multiprocessing.get_context("fork").Process
    writers = [start(target=append_many, args=(log.path, rank, 100)) for rank in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    seen = [(each.rank, each.step) for each in read_events(log.path)]
    assert len(seen) == 400
    for rank in range(4):
        assert [step for who, step in seen if who == rank] == list(range(100))


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


@pytest.mark.parametrize("line", [b"not json", b"[]", b"{}", b'{"data": {}}', b"\xff\xfe", b'{"a": {"b": 1}}'])
def test_a_complete_line_that_is_no_event_is_an_error(log, line):
    log(event(1))
    with log.path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(StateError):
        read_events(log.path)


def test_an_empty_file_has_no_events(tmp_path):
    (tmp_path / "e.jsonl").touch()
    assert read_events(tmp_path / "e.jsonl") == []


@pytest.mark.parametrize(
    ("level", "synced"), [(Level.ERROR, 1), (Level.WARNING, 0), (Level.NORMAL, 0)], ids=lambda value: str(value)
)
def test_first_level_events_are_synced_to_the_disk_and_others_cost_no_sync(log, monkeypatch, level, synced):
    calls = []
    monkeypatch.setattr(module.os, "fsync", lambda descriptor: calls.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    log(event(level=level))
    assert calls == [str(log.path)] * synced


def test_a_folder_that_can_not_be_written_is_an_os_error_that_ends_no_training():
    log = EventLog(Path("/proc/no/such/events.jsonl"))  # root too may make no folder there
    with pytest.raises(OSError, match="/proc/no"):
        log(event())
    kept = []
    watch = Monitor(Config(enable=1), ORIGIN, [log, kept.append])
    assert watch.judge(1, [Reading("a", 2e6, 2e6, 0, 1)]).fatal is kept[0]
    assert kept[1].reason.startswith("an event can't be handed to EventLog: ")


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


def test_a_name_that_is_no_utf8_does_not_lose_the_event(log):
    strange = event(run=os.fsdecode(b"run\xff"))
    log(strange)
    assert read_events(log.path) == [strange]

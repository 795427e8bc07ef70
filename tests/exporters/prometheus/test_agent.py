"""The node agent: counts what the ranks leave in their folders, across restarts and whatever is in the files."""

import json
import logging
import os
import shutil
import threading
import time
import tracemalloc

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from asd import Event, Level
from asd.exporters.ledger import Ledger
from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.device_map import DeviceNames
from asd.exporters.prometheus.node import NodeCollector
from asd.judge.status import Status
from asd.rundir import names as run_dir
from tests.support.events import event_maker, made_of

event = event_maker(device="Ascend:3", level=Level.WARNING)


def write(folder, *events, rank=0):
    folder.mkdir(parents=True, exist_ok=True)
    with run_dir.event_file(folder, rank).open("a") as file:
        file.writelines(each.to_json() + "\n" for each in events)


def second(agent):
    """Anomalies of the second level by rank."""
    return {key.rank: tally.anomalies["second"] for key, tally in agent.ledger.counts().items()}


def problems(agent):
    return {reason: count for reason, count in agent.problems.items() if count}


def registry_of(agent):
    registry = CollectorRegistry()
    registry.register(NodeCollector(agent))
    return registry


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def agents():
    opened = []

    def start(*arguments, **options):
        opened.append(Agent(*arguments, **options))
        return opened[-1]

    yield start
    for agent in opened:
        agent.close()


def test_it_counts_the_events_of_all_ranks_and_folders(agents, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    agent = agents([one, two])
    agent.poll()
    assert second(agent) == {}
    write(one, event(1), event(2))
    write(two, event(1, rank=1, run="run2"), rank=1)
    agent.poll()
    assert second(agent) == {0: 2, 1: 1}
    write(two, event(2, rank=1, run="run2"), event(2, rank=1, run="run2"), rank=1)  # one of them twice
    agent.poll()
    assert second(agent) == {0: 2, 1: 2}
    assert agent.journal.recent() == [event(1), event(2), *(event(step, rank=1, run="run2") for step in (1, 2))]
    assert problems(agent) == {}


def test_that_nothing_was_found_is_shown(agents, tmp_path, caplog):
    agent = agents([tmp_path], tmp_path / "state.json")
    registry = registry_of(agent)
    agent.poll()
    agent.poll()
    assert str(tmp_path) in agent.ready()
    assert f"{agent.ready()}." in [record.message for record in caplog.records]
    assert registry.get_sample_value("asd_agent_run_folders") == 0
    write(tmp_path / "job", event(1))
    agent.poll()
    assert agent.ready() == ""
    assert registry.get_sample_value("asd_agent_run_folders") == 1


def flood(kind, folder):
    folder.mkdir()
    log, line = run_dir.event_file(folder, 0), event(1).to_json() + "\n"
    if kind in ("hole", "a line without end"):
        log.write_text(line)
        os.truncate(log, 1 << 40 if kind == "hole" else 20 << 20)
    elif kind == "events":
        write(folder, *(event(step, rank=step) for step in range(1, 2000)))
    else:
        for number in range(300):
            at = folder / f"{number}" if kind == "folders" else folder
            write(at, event(1, rank=number), event(2, rank=number), rank=number)


@pytest.mark.parametrize("kind", ["hole", "a line without end", "events", "logs", "folders"])
@pytest.mark.parametrize("site", ["evil", "zoo"])
def test_whatever_one_job_floods_the_agent_with_delays_no_other_job(agents, tmp_path, kind, site):
    flood(kind, tmp_path / site)
    write(tmp_path / "good", event(4242))
    agent, once = agents([tmp_path]), threading.Event()
    once.set()  # a turn alone
    agent.poll(once)
    assert agent.journal.last <= 500  # before anybody pulls
    cursor, found = "", []
    while not any('"step": 4242' in text for text in found):
        page = agent.journal.page([cursor], 250)
        cursor, found = page.cursor, [*found, *page.events]
        agent.poll(once)
    assert len(found) <= 500
    samples = [sample for family in registry_of(agent).collect() for sample in family.samples]
    behind, ready = (
        {each.labels["folder"]: each.value for each in samples if each.name == f"asd_agent_{name}"}
        for name in ("behind_bytes", "run_ready")
    )
    assert (behind[str(tmp_path / "good")], ready[str(tmp_path / "good")]) == (0, 1)
    if kind != "folders":
        assert behind[str(tmp_path / site)] > 0
    assert ready == {folder: not left for folder, left in behind.items()}
    agent.poll()
    assert agent.ready() == ""


def test_a_job_that_repeats_its_events_holds_up_no_new_one(agents, folder):
    repeated = [event(step) for step in range(150)]
    write(folder, *repeated)
    agent = agents([folder])
    agent.poll()
    cursor = agent.journal.page((), 1000).cursor
    agent.journal.page((cursor,), 1)
    write(folder, *repeated)
    for _ in range(3):
        agent.poll()
    assert not agent.journal.has_after((cursor,))
    write(folder, event(150))
    agent.poll()
    assert [Event.from_json(text).step for text in agent.journal.page((cursor,), 10).events] == [150]


def test_a_reader_that_went_away_or_stands_still_holds_nothing_up(agents, folder):
    now = [100.0]
    write(folder, event(0))
    agent = agents([folder], monotonic=lambda: now[0])
    agent.poll()
    agent.journal.page((), 1)
    write(folder, *(event(step) for step in range(1, 1000)))
    for now[0] in (110.0, 159.0):
        agent.poll()
        assert 100 <= second(agent)[0] < 500  # what it is to read first
        agent.journal.page((), 1)  # as at first
    now[0] = 161.0
    agent.poll()
    assert second(agent) == {0: 1000}


def test_runs_below_its_folder_come_and_go(agents, tmp_path):
    agent = agents([tmp_path], tmp_path / "state.json")
    agent.poll()
    write(tmp_path / "team" / "job1", event(1, run="job1"))
    for rank, age in enumerate((86_000, 86_500)):
        status = made_of(Status, run="job1", rank=rank, host="node7", device="Ascend:3", written=time.time() - age)
        run_dir.status_file(tmp_path / "team" / "job1", rank).write_text(status.to_json())
    agent.poll()
    assert [each.run for each in agent.journal.recent()] == ["job1"]
    assert [(each.run, each.rank) for each in agent.statuses()] == [("job1", 0)]  # the other wrote none for a day
    write(tmp_path / "job2", event(1, run="job2"))
    shutil.rmtree(tmp_path / "team" / "job1")
    agent.poll()
    assert [each.run for each in agent.journal.recent()] == ["job1", "job2"]
    assert agent.statuses() == []
    assert agent.run_folders == 1
    assert problems(agent) == {}


def test_ranks_of_other_machines_alone_are_told_of(agents, folder, caplog):
    write(folder, event(1))
    for rank in range(3):
        status = made_of(Status, run="r", rank=rank, host=f"pod-{rank}", device="Ascend:3", written=time.time())
        run_dir.status_file(folder, rank).write_text(status.to_json())
    agent = agents([folder], host="node7")
    registry = registry_of(agent)
    agent.poll()
    agent.poll()
    (line,) = [record.message for record in caplog.records]
    assert all(name in line for name in ("pod-0, pod-1, pod-2", "node7", "ASD_NODE"))
    assert registry.get_sample_value("asd_agent_left_out_ranks") == 3


def test_it_is_ready_after_the_first_poll_and_not_when_polls_are_stuck(agents, folder):
    now = [100.0]
    write(folder, event(1))
    agent = agents([folder], poll_interval=2.0, monotonic=lambda: now[0], clock=lambda: 5000.0)
    assert agent.ready()
    assert agent.last_poll == 0.0
    agent.poll()
    assert agent.last_poll == 5000.0
    now[0] = 120.0
    assert agent.ready() == ""
    now[0] = 120.5
    assert "20 s" in agent.ready()
    agent.poll()
    assert agent.ready() == ""


def test_after_a_restart_it_goes_on_where_it_was(folder, agents):
    write(folder, event(1, level=Level.ERROR), event(2))
    first = agents([folder])
    first.poll()
    first.close()
    write(folder, event(3), event(4, level=Level.ERROR))
    again = agents([folder])
    assert again.ledger.counts() == first.ledger.counts()
    again.poll()
    tally = next(iter(again.ledger.counts().values()))
    assert tally.anomalies == {"first": 2, "second": 2}
    assert [each.step for each in again.journal.recent()] == [1, 2, 3, 4]
    assert problems(again) == {}


def test_what_a_newer_version_left_is_told_and_everything_else_is_counted_anew(folder, agents, caplog):
    write(folder, event(1), event(2))
    agent = agents([folder])
    agent.poll()
    object.__setattr__(newer := event(3), "cause", "of a newer version")
    agent.journal.add([newer], {"cursor": {"version": 77}})
    agent.close()
    with caplog.at_level(logging.WARNING):
        again = agents([folder])
    again.poll()
    assert (second(again), problems(again)) == ({0: 2}, {"cursor": 1})
    assert f"{agent.state_file} " in caplog.text
    assert [each.step for each in again.journal.recent()] == [1, 2]
    again.close()
    last = agents([folder])
    assert (second(last), problems(last)) == ({0: 2}, {})


BAD_LINES = ["not json", "{}", "{" * 100_000, "\udcff\udcfe", "0" * 5000]
BAD_LINES += [event().to_json()[:-30], event().to_json() * 2]


def test_lines_that_are_no_events_are_told_and_the_others_count(folder, agents):
    folder.mkdir()
    lines = [line for bad in BAD_LINES for line in (bad, event(BAD_LINES.index(bad) + 1).to_json())]
    text = "\n".join([*lines, "x" * (1 << 20), "x" * (1 << 22), event(99).to_json(), event(100).to_json()[:40]])
    run_dir.event_file(folder, 0).write_bytes(text.encode(errors="surrogateescape"))
    agent = agents([folder])
    agent.poll()
    assert second(agent) == {0: len(BAD_LINES) + 1}
    assert problems(agent) == {"bad_line": len(BAD_LINES) + 1, "long_line": 1}


def test_only_one_host_may_be_asked_for_whose_events_get_the_numbers_of_its_device_map(folder, agents):
    write(folder, event(1), event(2, host="other", rank=1))
    for rank, host in enumerate(("node7", "other")):
        status = made_of(Status, run="run1", rank=rank, host=host, device="Ascend:3", written=time.time())
        run_dir.status_file(folder, rank).write_text(status.to_json())
    agent = agents([folder], host="node7", devices=lambda _host, _device: DeviceNames("11"))
    agent.poll()
    assert second(agent) == {0: 1}
    assert [status.rank for status in agent.statuses()] == [0]
    assert [(each.host, each.device_number) for each in agent.journal.recent()] == [("node7", 11)]


def test_a_link_in_the_place_of_a_file_leads_nobody_to_what_only_the_agent_may_read(tmp_path, agents, caplog):
    folder, secret = tmp_path / "run", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("top secret\n")
    for path in (run_dir.event_file(folder, 0), run_dir.status_file(folder, 0)):
        path.symlink_to(secret)
    agent = agents([folder])
    agent.poll()
    assert problems(agent) == {"event_log": 1, "status_file": 1}
    assert "top secret" not in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_another_user_says_was_given_back_is_told_as_a_problem_and_keeps_its_strikes(tmp_path, agents):
    alarm_is_over = event(2, kind="recovery", recovered_by="vendor")
    write(tmp_path, event(1, kind="recovery", recovered_by="person"), alarm_is_over)
    os.chown(run_dir.event_file(tmp_path, 0), 1001, -1)
    agent = agents([tmp_path])
    agent.poll()
    assert problems(agent) == {"bad_line": 1}
    assert agent.journal.recent() == [alarm_is_over]


def test_whatever_fails_inside_it_begins_again_where_all_was_well(folder, agents, monkeypatch):
    agent, stop = agents([folder], poll_interval=0.01), threading.Event()
    write(folder, event(1))
    agent.poll()
    broken = []

    def add(ledger, each, now=None, real=Ledger.add):
        if each.step == 3 and len(broken) < 3:
            broken.append(each)
            raise MemoryError
        if each.step == 4:
            stop.set()
        return real(ledger, each, now)

    monkeypatch.setattr(Ledger, "add", add)
    write(folder, *(event(step) for step in (2, 3, 4)))
    agent.run(stop)
    assert len(broken) == 3
    assert second(agent) == {0: 4}
    assert [each.step for each in agent.journal.recent()] == [1, 2, 3, 4]
    assert problems(agent) == {"event_log": 3}


@pytest.mark.parametrize("kind", ["disk_full", "read_only"])
def test_a_disk_that_no_rank_can_write_on_is_told_unless_by_an_onlooker(folder, agents, monkeypatch, tmp_path, kind):
    folder.mkdir()
    agent, onlooker = agents([folder]), agents([folder], tmp_path / "state.json")
    agent.poll()
    assert problems(agent) == {}
    before = agent.ready()
    disk = list(os.statvfs(folder))
    disk[3:5] = (0, 0) if kind == "disk_full" else disk[3:5]
    disk[8] |= os.ST_RDONLY if kind == "read_only" else 0
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(disk))
    agent.poll()
    onlooker.poll()
    assert problems(agent) == {kind: 1}
    assert (agent.ready() != before, onlooker.problems["read_only"]) == (kind == "disk_full", 0)


@pytest.mark.parametrize(("checkpoints", "series"), [(0, 0), (2, 4)])
def test_a_rank_costs_few_bytes_however_many_checkpoints_it_has(folder, agents, checkpoints, series):
    folder.mkdir()
    agent = agents([folder], checkpoints=checkpoints, clock=lambda: 1e9)
    agent.poll()  # what it loads is not counted
    values = {f"model.layers.{number}.attention_norm": (1.0 + number, 1e6) for number in range(100)}
    for rank in range(100):
        status = made_of(Status, run="r", rank=rank, host="n", device=f"Ascend:{rank}", checkpoints=values, written=1e9)
        run_dir.status_file(folder, rank).write_text(status.to_json())
    tracemalloc.start()
    try:
        agent.poll()
        assert tracemalloc.get_traced_memory()[0] / 100 < 4000
    finally:
        tracemalloc.stop()
    registry = registry_of(agent)
    shown = [line for line in generate_latest(registry).decode().splitlines() if line.startswith("asd_feature_")]
    assert len(shown) == 100 * series
    assert all("layers.99." in line or "layers.98." in line for line in shown)


def test_events_of_a_megabyte_each_take_little_memory_and_their_reasons_are_cut(folder, agents):
    folder.mkdir()
    with run_dir.event_file(folder, 0).open("w") as file:
        for step in range(1, 101):
            told = json.loads(event(step).to_json())
            told["data"]["reason"] = "x" * 1_000_000
            file.write(json.dumps(told) + "\n")
    agent = agents([folder])
    tracemalloc.start()
    try:
        agent.poll()
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert second(agent) == {0: 100}
    assert {len(each.reason) for each in agent.journal.recent()} == {2000}
    assert agent.journal.recent()[0].reason.endswith("x ... (cut, it had 1000000 characters)")


def test_pipes_in_the_place_of_its_files_keep_the_agent_not_waiting(tmp_path, agents, caplog):
    for name in ("exporter.sqlite", "status-rank0.json", "events-rank0.jsonl"):
        os.mkfifo(tmp_path / name)  # opening one would wait for a writer
    agent = agents([tmp_path])
    agent.poll()
    assert agent.ready() in caplog.text
    assert "exporter.sqlite" in agent.ready()

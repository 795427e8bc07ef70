"""`asd handler`: from event logs to isolations, with real logs, processes and sockets."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime
from types import SimpleNamespace

import pytest

from asd import Level
from asd.cli import main
from asd.cli.shared.isolation import IsolationLog
from asd.cli.shared.stopping import stopped
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler.db.store import events_file, state_file
from asd.handler.model.decision import ACTIONS
from asd.rundir.names import event_file
from tests.support.events import event_maker, growing
from tests.support.waiting import wait_for

event = event_maker(run="llama", rank=3, device="Ascend:3", value=growing, time=lambda step: time.time())


def persistent(step=1, **changes):
    return event(step, kind="replay", verdict="persistent", **changes)


def write(run_dir, *events):
    for told in events:
        EventLog(event_file(run_dir, told.rank))(told)


def once(run_dir, *options):
    return main(["handler", "--once", "--run-dir", str(run_dir), *options])


def kinds(run_dir):
    log = events_file(run_dir)
    return [(told.kind, told.device) for told in read_events(log)] if log.exists() else []


def start(*arguments, **pipes):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **pipes}
    return subprocess.Popen([sys.executable, "-m", "asd", "handler", *map(str, arguments)], **pipes)


def test_once_takes_in_what_is_there_and_lets_its_strikes_settle(tmp_path, capfd):
    write(tmp_path, *map(event, (1, 2, 3, 4, 5)), event(1, rank=4, device="Ascend:4"))
    assert once(tmp_path) == 0
    assert kinds(tmp_path) == [("isolation", "Ascend:3")]
    assert read_events(events_file(tmp_path))[0].time <= time.time()
    *out, last = [line.partition(":")[0] for line in capfd.readouterr().out.splitlines()]
    assert (out, [int(word) for word in last.split() if word.isdigit()]) == (["waiting", "isolated"], [6, 2, 1])
    assert once(tmp_path) == 0
    assert kinds(tmp_path) == [("isolation", "Ascend:3")]


def test_a_node_that_makes_up_devices_fills_no_log_and_hides_no_other_node(tmp_path, capfd):
    passed = {"kind": "stress", "level": Level.NORMAL, "checkpoint": ""}
    made_up = [event(0, device=f"Ascend:{number}", **passed) for number in range(900)]
    write(tmp_path, *made_up, persistent(host="node8"))
    assert once(tmp_path, "--from-beginning") == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) < 100
    assert any(line.startswith("isolat") and "node8" in line for line in lines)


@pytest.mark.parametrize(("noise", "ranks", "isolated"), [(300, (3,), (3, 4)), (25, (3, 5, 6), (4,))])
def test_strikes_wait_for_the_end_of_a_backlog_but_not_of_a_flood(tmp_path, monkeypatch, noise, ranks, isolated):
    clock = SimpleNamespace(time=time.time, monotonic=iter(range(0, 1 << 20, 2)).__next__)
    monkeypatch.setattr("asd.cli.act.handler.time", clock)  # two seconds pass with each look at it
    monkeypatch.setattr("asd.handler.inputs.feed._AT_ONCE", 1)
    write(tmp_path, *map(event, (1, 2, 3)))
    for rank in ranks:
        with event_file(tmp_path, rank).open("a") as log:
            log.write("x\n" * noise)
        write(tmp_path, *(event(step, rank=rank, device=f"Ascend:{rank}") for step in (1, 2, 3) if rank != 3))
    write(tmp_path, persistent(host="node8", device="Ascend:4", rank=ranks[-1]))

    def stop():
        wait_for(lambda: ("isolation", "Ascend:4") in kinds(tmp_path))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    assert main(["handler", "--run-dir", str(tmp_path), "--settle", "0.01"]) == 0
    assert kinds(tmp_path) == [("isolation", f"Ascend:{number}") for number in isolated]


def test_decisions_as_json_of_a_folder_whose_name_is_no_text(tmp_path, capfd):
    told, run_dir = persistent(), tmp_path / os.fsdecode(b"\xff")
    write(run_dir, told)
    assert once(run_dir, "--json") == 0
    (line,) = capfd.readouterr().out.splitlines()
    found = json.loads(line)
    assert datetime.fromisoformat(found.pop("time")).timestamp() == pytest.approx(told.time, abs=60)
    assert found.pop("reason").startswith("Ascend:3 on node7: ")
    device = {"host": "node7", "device": "Ascend:3", "rank": 3}
    assert found == {"action": "isolated", "device": device, "event": told.id}


def test_a_full_disk_under_its_output_ends_no_handler(tmp_path):
    write(tmp_path, persistent())
    with open("/dev/full", "w") as full:
        assert start("--once", "--json", "--run-dir", tmp_path, stdout=full, stderr=full).wait(60) == 0
    assert kinds(tmp_path) == [("isolation", "Ascend:3")]


def test_old_events_act_only_when_asked(tmp_path, capfd):
    write(tmp_path, persistent(time=time.time() - 3600))
    assert once(tmp_path) == 0
    assert kinds(tmp_path) == []
    printed = capfd.readouterr()
    assert "--from-beginning" in printed.out
    assert "node7" in printed.err
    assert once(tmp_path, "--state", str(tmp_path / "other.sqlite"), "--from-beginning") == 0
    assert kinds(tmp_path) == [("isolation", "Ascend:3")]


def test_a_dry_run_says_what_it_would_do(tmp_path, capfd):
    write(tmp_path, persistent())
    assert once(tmp_path, "--dry-run") == 0
    assert kinds(tmp_path) == []
    assert capfd.readouterr().out.startswith("would-isolate: Ascend:3 on node7: ")
    assert once(tmp_path) == 0  # the dry run has taken nothing away from the one in earnest
    assert kinds(tmp_path) == [("isolation", "Ascend:3")]


def test_the_breaker_is_reset_by_hand_where_a_handler_was_and_nowhere_else(tmp_path, capfd):
    assert main(["handler", "--reset-breaker", "--run-dir", str(tmp_path)]) == 1
    assert capfd.readouterr().err.startswith(f"asd: {tmp_path}/handler.sqlite ")
    assert list(tmp_path.iterdir()) == []
    write(tmp_path, *(persistent(rank=rank, host=f"node{rank}", device=f"Ascend:{rank}") for rank in range(3)))
    assert once(tmp_path) == 0
    assert kinds(tmp_path) == [("isolation", "Ascend:0"), ("isolation", "Ascend:1")]
    assert "breaker: Ascend:2 on node2: " in capfd.readouterr().out
    assert main(["handler", "--reset-breaker", "--run-dir", str(tmp_path)]) == 0
    assert once(tmp_path) == 0
    assert len(kinds(tmp_path)) == 2
    write(tmp_path, persistent(2, rank=2, host="node2", device="Ascend:2"))
    assert once(tmp_path) == 0
    assert kinds(tmp_path)[2:] == [("isolation", "Ascend:2")]


@pytest.mark.parametrize("gone", ["handler.sqlite", "handler.sqlite.lock"])
def test_a_handler_whose_database_or_lock_was_removed_acts_no_more_and_says_so(tmp_path, gone):
    handler = start("--run-dir", tmp_path)
    assert "no run was found" in handler.stderr.readline()  # it has looked once
    (tmp_path / gone).unlink()
    said = handler.stderr.readline()
    assert said.startswith(f"asd handler: {tmp_path}/handler.sqlite ")
    write(tmp_path, persistent())
    handler.terminate()
    handler.communicate(timeout=20)
    assert kinds(tmp_path) == []


def test_sigterm_is_heeded_while_the_main_thread_holds_the_lock_of_the_event():
    with stopped() as stop, stop._cond:  # as `wait` does for a moment
        signal.raise_signal(signal.SIGTERM)
    assert stop.wait(10)


def test_a_database_that_fails_when_the_handler_counts_is_one_sentence(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("asd.cli.act.handler.HandlerCounts.look", lambda *_: sqlite3.connect(tmp_path / "no" / "file"))
    assert once(tmp_path) == 1
    assert f"{tmp_path}/handler.sqlite can't be used: unable to open database file" in capfd.readouterr().err


def test_an_isolation_that_could_not_be_published_is_no_success(tmp_path):
    write(tmp_path, persistent())
    events_file(tmp_path).symlink_to(tmp_path / "elsewhere")
    assert once(tmp_path) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_bad_lines_are_said_once_however_many_come(tmp_path, capfd):
    event_file(tmp_path, 0).write_text("x\n" * 1100)  # more than are read at once
    assert once(tmp_path) == 0
    assert capfd.readouterr().err.count("are not events") == 1


def test_the_log_of_isolations_has_what_was_written_though_its_call_failed(tmp_path, monkeypatch):
    log, first, second = IsolationLog(tmp_path), persistent(1), persistent(2)
    assert not log.has(first.id)
    with monkeypatch.context() as patched:
        patched.setattr("asd.cli.shared.isolation.sync", lambda _path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            log(first)
    log(second)
    assert [log.has(each.id) for each in (first, second, persistent(3))] == [True, True, False]


def test_a_second_handler_of_a_database_ends_with_one_sentence(tmp_path):
    lock = tmp_path / "handler.sqlite.lock"
    first = start("--run-dir", tmp_path)
    wait_for(lambda: lock.exists() and lock.read_text() == str(first.pid))
    second = start("--run-dir", tmp_path)
    out, err = second.communicate(timeout=20)
    assert (out, f"(process {first.pid})" in err, err.count("\n")) == ("", True, 1)
    assert second.returncode == 1
    first.kill()
    first.communicate()
    assert once(tmp_path) == 0


def scrape(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def test_its_metrics_begin_at_0_and_tell_what_it_did_and_that_the_circuit_breaker_opened(tmp_path):
    (tmp_path / "hosts").write_text("node7\nnode8\nnode9\n")
    command = ["--run-dir", tmp_path, "--metrics", "127.0.0.1:0", "--max-devices", "1", "--isolator", "hostfile"]
    with start(*command, "--option", f"hosts={tmp_path / 'hosts'}") as process:
        try:
            url = process.stderr.readline().split()[-1]
            found = scrape(url)
            actions = {name for name in found if name.startswith("asd_handler_actions_total{")}
            assert actions == {f'asd_handler_actions_total{{action="{action}"}}' for action in ACTIONS}
            from_the_start = {"asd_handler_last_look_timestamp_seconds", "asd_handler_acting"}
            assert {name for name, value in found.items() if value} <= from_the_start
            began = time.time()
            write(tmp_path, persistent(1, device_number=5), persistent(2, rank=4, device="Ascend:4"))
            wait_for(lambda: scrape(url)["asd_handler_devices_known"] == 2.0)
            assert scrape(url)["asd_handler_circuit_open"] == 0.0
            write(tmp_path, *(persistent(3, host=f"node{number}") for number in (8, 9)))
            wait_for(lambda: scrape(url)["asd_handler_circuit_open"] == 1.0)
            found = scrape(url)
            assert found['asd_handler_actions_total{action="isolated"}'] == 3.0
            assert found['asd_handler_actions_total{action="breaker"}'] == 1.0
            assert found["asd_handler_devices_known"] == 4.0
            assert (found["asd_handler_devices_isolated"], found["asd_handler_acting"]) == (3.0, 1.0)
            out = {name for name in found if name.startswith("asd_handler_device_isolated{") and found[name] == 1.0}
            assert out == {
                f'asd_handler_device_isolated{{device="Ascend:{device}",id="{number}",node="node{node}"}}'
                for device, number, node in ((3, 5, 7), (4, 4, 7), (3, 3, 8))
            }
            assert found["asd_handler_events_total"] >= 2.0
            assert found["asd_handler_last_event_timestamp_seconds"] >= began
        finally:
            process.terminate()
            process.communicate(timeout=20)
    assert process.returncode == 0


def readiness(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_handler_that_can_not_write_down_what_it_knows_is_not_ready_and_says_why(tmp_path):
    write(tmp_path, event(1))
    with start("--run-dir", tmp_path, "--metrics", "127.0.0.1:0") as process:
        try:
            url = process.stderr.readline().split()[-1].replace("/metrics", "/readyz")
            wait_for(lambda: readiness(url)[0] == 200)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))  # as a full disk, every write fails
            wait_for(lambda: readiness(url)[0] == 503)
            for _ in range(200):  # it tries again every 10 ms, and none of its steps makes it ready
                assert str(state_file(tmp_path)) in readiness(url)[1]
        finally:
            process.terminate()
            process.communicate(timeout=20)

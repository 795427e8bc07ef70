"""Real ranks compare their weights, and end with a clear sentence when one of them dies or hangs."""

import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

from asd.handler import job_of
from asd.judge.status import Status
from asd.rundir.manifest import load_manifest, manifest_path
from asd.rundir.names import status_file
from tests.support.ports import free_port

PROGRAM = Path(__file__).parent / "programs" / "alike.py"


def launch(runner, ranks, node, port, *words):
    """MindSpore's launcher for rank `node`, as on a host of its own."""
    options = (f"--worker_num={ranks}", "--local_worker_num=1", f"--node_rank={node}", "--master_addr=127.0.0.1")
    return runner.launch(*options, f"--master_port={port}", f"--log_dir=logs{node}", PROGRAM, *words)


def told(log):
    """What a rank printed per step."""
    return [json.loads(line.partition("STEP ")[2]) for line in log.splitlines() if line.startswith("STEP ")]


def train_together(runner, ranks, *words, timeout=120):
    """The exit code, and what each rank printed per step."""
    done, logs = runner.ranks(PROGRAM.name, *words, count=ranks, timeout=timeout)
    return done.code, [told(log) for log in logs]


def events(runner, ranks):
    return [runner.events(f"asd_run/events-rank{rank}.jsonl") for rank in range(ranks)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_one_flipped_bit_of_one_of_three_ranks_is_found_by_the_next_comparison_and_the_rank_is_named(runner, mode):
    code, steps = train_together(runner, 3, mode, "damage", "skip")
    assert code != 0
    kinds = [[step["kinds"] for step in each] for each in steps]
    assert kinds == [[[], [], [], [kind]] for kind in ("follower", "follower", "anomaly")]
    assert all(each[-1]["stopped"] for each in steps)
    assert len({each[2]["digest"] for each in steps}) == 1
    *others, [anomaly] = events(runner, 3)
    reason = anomaly["reason"]
    assert all(word in reason for word in ("rank 2 differs", "last.weight"))
    assert (anomaly["rank"], anomaly["step"], anomaly["checkpoint"], anomaly["level"]) == (2, 4, "weights", "first")
    assert (anomaly["value"], anomaly["rule"], anomaly["refused"]) == (1.0, "weight_hash", False)
    assert [[(event["kind"], event["level"], event["reason"]) for event in each] for each in others] == [
        [("follower", "normal", reason)]
    ] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "who"), [("parts", "ranks 0, 1 differ in first.weight"), ("labels", "rank 1 differs from the other 2")]
)
def test_ranks_of_unlike_parts_or_with_layers_of_their_own_compare_what_they_share(runner, story, who):
    code, steps = train_together(runner, 3, "graph", story, "skip")
    assert code != 0
    assert [each[-1]["step"] for each in steps] == [4] * 3
    (reason,) = {event["reason"] for each in events(runner, 3) for event in each}
    assert who in reason


@pytest.mark.slow
def test_only_a_checkpoint_after_the_last_comparison_that_found_all_alike_is_tainted(runner):
    code, steps = train_together(runner, 2, "graph", "checkpoint", "stop")
    assert code != 0
    assert [[step["step"] for step in each] for each in steps] == [[1, 2, 3, 4, 5, 6]] * 2
    [[anomaly], [follower]] = events(runner, 2)
    assert "differ in last.weight" in anomaly["reason"]
    assert (anomaly["kind"], anomaly["rank"], anomaly["device"]) == ("anomaly", -1, "unknown")
    assert (follower["kind"], follower["rank"]) == ("follower", 1)
    tainted = {step: load_manifest(manifest_path(runner.folder / f"step{step}.ckpt")).tainted_from for step in (2, 4)}
    assert tainted == {2: 0, 4: 4}  # step 3 was the last after which they were alike


@pytest.mark.slow
def test_ranks_that_begin_with_other_weights_are_told_once_and_go_on(runner):
    code, steps = train_together(runner, 2, "graph", "unlike", "stop")
    assert code == 0
    assert [len(each) for each in steps] == [6, 6]
    for [problem] in events(runner, 2):
        assert (problem["kind"], problem["step"]) == ("problem", 1)


@pytest.mark.slow
def test_ranks_of_two_launchers_find_one_name(runner):
    port, words = free_port(), ("pynative", "nothing", "stop")
    with launch(runner, 2, 0, port, *words) as first, launch(runner, 2, 1, port, *words) as second:
        try:
            for process in (first, second):  # either may end with 1, when the other's scheduler has gone before it
                process.wait(180)
        finally:
            for process in (first, second):
                process.kill_group()
                process.communicate()
    statuses = [Status.from_json(status_file(runner.folder / "asd_run", rank).read_text()) for rank in range(2)]
    assert [status.step for status in statuses] == [6, 6]
    (run,) = {status.run for status in statuses}
    assert job_of(run) == f"msrun-{socket.gethostname()}-{port}"


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "story"), [("graph", "kill"), ("graph", "stop"), ("pynative", "stop")])
def test_a_rank_that_dies_or_hangs_in_an_exchange_ends_the_other_with_its_name(runner, mode, story):
    port = free_port()
    log = runner.folder / "logs0" / "worker_0.log"
    with (
        launch(runner, 2, 0, port, mode, story, "stop") as first,
        launch(runner, 2, 1, port, mode, story, "stop") as second,
    ):
        try:
            end = time.monotonic() + 240
            while not (log.exists() and "RankLostError" in log.read_text() and not _workers(first.pid)):
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.5)
        finally:
            for pid in [*_workers(first.pid, all_of=True), *_workers(second.pid, all_of=True)]:
                os.kill(pid, signal.SIGKILL)
            for process in (first, second):
                process.kill_group()
                process.communicate()
    lost = told(log.read_text())[-1]
    assert (lost["step"], lost["lost"]) == (4, [1])
    what, least, most = ("has died", 1, 10) if story == "kill" else ("is stopped", 24, 29)
    assert least < lost["waited"] < most
    sentence = next(line for line in log.read_text().splitlines() if line.startswith("asd.errors.RankLostError: "))
    assert all(word in sentence for word in ("rank 0 ", "rank 1 (process ", what))


def _workers(parent, *, all_of=False):
    """The processes of `PROGRAM` that `parent` started, the scheduler only with `all_of`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or str(PROGRAM) not in (entry / "cmdline").read_text().split("\0"):
                continue
            state, ppid = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            scheduler = b"MS_ROLE=MS_SCHED" in (entry / "environ").read_bytes()
        except OSError:
            continue
        if int(ppid) == parent and state != "Z" and (all_of or not scheduler):
            found.append(int(entry.name))
    return found


@pytest.mark.skipif(shutil.which("g++") is None, reason="the device below MindSpore is built with g++")
@pytest.mark.parametrize(("mode", "ranks"), [("graph", 2), pytest.param("pynative", 3, marks=pytest.mark.slow)])
def test_wrong_sums_of_a_link_are_refused_and_name_a_rank_only_where_others_got_other_sums(runner, mode, ranks):
    code, [first, *others] = train_together(runner, ranks, mode, "links", "skip", timeout=200)
    told = [[event for event in each if event["kind"] != "problem"] for each in events(runner, ranks)]
    anomalies = sorted((each["step"], each["rank"]) for rank in told for each in rank if each["kind"] == "anomaly")
    assert (code, anomalies) == (0, [(2, -1), (3, -1), (4, -1), (5, 2 if ranks > 2 else -1)])
    assert {(each["rule"], each["checkpoint"], each["refused"]) for each in told[0]} == {("link", "first.weight", True)}
    digests = [step["digest"] for step in first]
    assert [i + 1 for i in range(1, 6) if digests[i] == digests[i - 1]] == [step for step, _ in anomalies]
    assert {step["digest"] for each in others for step in each} <= set(digests)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "named"), [("activation", 1), ("weight", -1)])
def test_what_is_seen_behind_a_reduce_scatter_is_refused_and_names_nobody(runner, place, named):
    done, logs = runner.ranks("sharded.py", place)
    assert done.code == 0, done
    assert [[step["step"] for step in told(log) if step["refused"]] for log in logs] == [[8], [8]]
    found = [event for each in events(runner, 2) for event in each if event["step"] == 8]
    assert {event["rank"] for event in found if event["kind"] == "anomaly"} == {named}


@pytest.mark.slow
def test_two_ranks_dump_apart(runner):
    done, _ = runner.ranks("dumped_ranks.py", runner.folder / "dump")
    assert done.code == 0, done
    for rank in (0, 1):
        dump = json.loads((runner.folder / "dump" / "step0" / f"rank{rank}" / "dump.json").read_text())
        (given,) = dump["data"]["Cell.model.Dense.forward.0"]["input_args"]
        assert given["Max"] == rank

"""Kill -9 of ranks and of the agent, at any moment: no event is lost and none is counted twice."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from itertools import count

import pytest

from asd import Event, Level
from asd.exporters.prometheus.agent import Agent
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.rundir import names as run_dir
from asd.rundir.disk import write_whole
from tests.support.events import event_maker

RANKS = 2
FORK = multiprocessing.get_context("fork")


made = event_maker(time=lambda step: 1e9 + step, reason=lambda step: "x" * (step % 1500))


def event(step, rank):
    level = Level.ERROR if step % 7 == 0 else Level.WARNING
    return made(step, rank=rank, device=f"Ascend:{rank}", level=level)


def train(folder, rank, first_step):
    """Writes events until it is killed; its log is rotated often, and nothing is thrown away."""
    log = EventLog(run_dir.event_file(folder, rank), max_bytes=50_000, keep=10_000)
    for step in count(first_step):
        log(event(step, rank))
        time.sleep(0.0005)


def follow(folder):
    agent = Agent([folder])
    while True:
        agent.poll()
        time.sleep(0.001)


def report(folder, results):
    agent = Agent([folder])
    for _ in range(3):
        agent.poll()
    page, kept = agent.journal.page((), 1000), []
    while page.events:
        kept += [Event.from_json(text).id for text in page.events]
        page = agent.journal.page((page.cursor,), 1000)
    counted = [(key.rank, each.anomalies) for key, each in agent.ledger.counts().items()]
    write_whole(results, json.dumps([agent.problems, counted, kept]))


def start(function, *arguments):
    process = FORK.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    process.close()


def written(folder, rank):
    name = run_dir.event_file(folder, rank).name
    paths = [path for path in run_dir.event_files(folder) if path.name.startswith(name)]
    return [event for path in paths for event in read_events(path)]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_event_survives_the_death_of_everyone(tmp_path, seed):
    chance = random.Random(seed)
    folder, results = tmp_path / "run", tmp_path / "results.json"
    folder.mkdir()
    agent = start(follow, folder)
    ranks = {rank: start(train, folder, rank, 1) for rank in range(RANKS)}
    for _ in range(25):
        time.sleep(chance.uniform(0.0, 0.06))
        if chance.random() < 0.3:
            rank = chance.randrange(RANKS)
            kill(ranks[rank])
            steps = [event.step for event in written(folder, rank)]
            ranks[rank] = start(train, folder, rank, max(steps, default=0) + 1)
        kill(agent)
        agent = start(follow, folder)
    time.sleep(0.05)
    for process in (*ranks.values(), agent):
        kill(process)
    start(report, folder, results).join(30)

    problems, counted, kept = json.loads(results.read_text())
    truth = [event for rank in range(RANKS) for event in written(folder, rank)]
    levels = {Level.ERROR: "first", Level.WARNING: "second"}
    expected = Counter((event.rank, levels[event.level]) for event in truth)
    assert {(rank, level): each[level] for rank, each in counted for level in each} == expected
    for rank in range(RANKS):  # what a fault handler would pull: each once, of every rank in its order
        ids = [event.id for event in truth if event.rank == rank]
        assert [each for each in kept if each in set(ids)] == ids
    assert len(kept) == len(truth)
    assert len(run_dir.event_files(folder)) > RANKS
    assert sum(expected.values()) > 100
    assert not any(problems.values())

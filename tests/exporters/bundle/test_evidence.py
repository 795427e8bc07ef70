"""The evidence of a step: a folder that is whole or not there, whose every file can be read."""

import csv
import json
import math
import multiprocessing
import random
import resource
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asd import Config, Event, Level
from asd.exporters.bundle import sink
from asd.exporters.bundle.files import write
from asd.exporters.bundle.sink import MOST_BUNDLES, open_evidence
from asd.exporters.report.bundles import SavedBundle, read_histories
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading
from asd.rundir.names import evidence_folder

ORIGIN = Origin("run1", 3, "node7", "Ascend:3")
FILES = {"config.json", "events.jsonl", "readings.json", "values.csv", "versions.json"}
FORK = multiprocessing.get_context("fork")


class Training:
    """A monitor with the sink, and checkpoints `a` and `b` whose values are given."""

    def __init__(self, folder, origin=ORIGIN, **changes):
        given = {"enable": 1, "on_anomaly": "log", "run_dir": str(folder), **changes}
        self.config = Config(protection="document", **given)
        self.sink = open_evidence(self.config, origin)
        self.events = []
        self.monitor = Monitor(self.config, origin, [self.sink, self.events.append], clock=lambda: 1000.0)
        self.step = 0

    def judge(self, a=1.0, b=1.0, step=None, names=("a", "b")):
        self.step = step if step is not None else self.step + 1
        return self.monitor.judge(self.step, [Reading(names[0], a, 10), Reading(names[1], b, 5)]).events

    def folder(self, step=None):
        origin = self.monitor.origin
        return evidence_folder(Path(self.config.run_dir), origin.run, origin.rank, step or self.step)

    def bundles(self):
        return sorted(path.name for path in self.folder(1).parent.iterdir())

    def problems(self):
        return [event.reason for event in self.events if event.kind == "problem"]


@pytest.fixture
def training(tmp_path):
    return Training(tmp_path / "run")


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_a_bundle_holds_everything_and_its_path_is_in_the_event(training):
    training.judge()
    events = training.judge(a=2e4, b=2e6)
    folder = training.folder()
    assert [(event.checkpoint, event.level, event.evidence) for event in events] == [
        ("b", Level.ERROR, str(folder)),
        ("a", Level.WARNING, ""),
    ]
    assert {path.name for path in folder.iterdir()} == FILES
    assert training.bundles() == ["rank3-step2"]
    assert [Event.from_json(line) for line in (folder / "events.jsonl").read_text().splitlines()] == events
    with (folder / "values.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"step": "1", "checkpoint": "b", "value": "1.0", "limit": "1000000.0", "level": "normal"},
        {"step": "2", "checkpoint": "b", "value": "2000000.0", "limit": "1000000.0", "level": "first"},
        {"step": "1", "checkpoint": "a", "value": "1.0", "limit": "1000000.0", "level": "normal"},
        {"step": "2", "checkpoint": "a", "value": "20000.0", "limit": "1000000.0", "level": "second"},
    ]
    assert read(folder, "readings.json") == [
        {"checkpoint": "b", "value": 2e6, "order": 5, "kind": "B"},
        {"checkpoint": "a", "value": 2e4, "order": 10, "kind": "B"},
    ]
    settings_in_force = read(folder, "config.json")
    assert (settings_in_force["rule"], settings_in_force["upper"]) == ("threshold", [1_000_000, 10_000])
    assert set(settings_in_force) == set(Config.__dataclass_fields__)
    versions = read(folder, "versions.json")
    assert versions["python"] == sys.version
    assert versions["numpy"] == np.__version__
    assert set(versions) == {"python", "platform", "asd", "mindspore", "mindformers", "numpy"}
    assert (training.monitor.status.evidence_dropped, training.problems()) == (0, [])


@pytest.mark.parametrize("bad", [2e6, math.inf, math.nan])
def test_the_bad_value_is_there_though_the_step_was_made_again_before_its_bundle_was_written(training, tmp_path, bad):
    training.judge()
    events = training.judge(b=2e6)
    # What the replay came to; the event has the limit of the second level.
    training.monitor.history["b"][-1] = (2, 1.5, 1e6, Level.NORMAL)
    training.monitor.readings = [
        each._replace(value=1.5) for each in training.monitor.readings if each.checkpoint == "b"
    ]
    write(tmp_path, training.config, training.monitor, [replace(events[0], value=bad, limits=(1e4,))])
    rows = [line.split(",") for line in (tmp_path / "values.csv").read_text().splitlines()]
    assert [row for row in rows if row[1] == "b"] == [
        ["1", "b", "1.0", "1000000.0", "normal"],
        ["2", "b", str(bad), "1000000.0", "first"],
        ["2", "b", "1.5", "1000000.0", "normal"],
    ]
    (site,) = [sites["b"] for sites in read_histories([SavedBundle(tmp_path, 3, 2)], {}).values()]
    assert [(point.step, str(point.value), point.level) for point in site] == [(1, "1.0", ""), (2, str(bad), "first")]
    assert [(each["made"], float(each["value"])) for each in read(tmp_path, "readings.json")] == [
        ("first", pytest.approx(bad, nan_ok=True)),
        ("rerun", 1.5),
    ]


def test_a_healthy_training_and_a_second_level_anomaly_leave_nothing(training):
    training.monitor.begin()
    for _ in range(3):
        training.judge(a=2e4)
    training.monitor.end()
    assert training.monitor.status.anomalies == {"first": 0, "second": 3}
    assert not Path(training.config.run_dir).exists()


def test_the_last_two_hundred_values_of_every_checkpoint_are_kept_whatever_the_history(tmp_path):
    training = Training(tmp_path)
    training.monitor = Monitor(training.config, ORIGIN, [training.sink], history=1000)
    for _ in range(300):
        training.judge()
    training.judge(b=2e6)
    with (training.folder() / "values.csv").open() as file:
        rows = list(csv.DictReader(file))
    for name in ("a", "b"):
        assert [int(row["step"]) for row in rows if row["checkpoint"] == name] == list(range(102, 302))


def test_after_twenty_bundles_of_a_run_each_further_step_is_counted_also_by_the_next_process(tmp_path):
    training = Training(tmp_path)
    for _ in range(MOST_BUNDLES + 2):
        events = training.judge(a=2e6, b=2e6)
    assert [event.evidence for event in events] == ["", ""]
    assert len(training.bundles()) == MOST_BUNDLES
    assert training.monitor.status.evidence_dropped == 2
    after = Training(tmp_path)
    after.judge(b=2e6, step=100)
    assert after.monitor.status.evidence_dropped == 1
    assert len(after.bundles()) == MOST_BUNDLES
    for origin in (replace(ORIGIN, rank=30), replace(ORIGIN, run="run2")):
        other = Training(tmp_path, origin)
        other.judge(b=2e6)
        assert other.folder().is_dir()


def test_a_step_that_is_made_again_by_a_resumed_training_gets_a_folder_of_its_own(tmp_path):
    paths = []
    for _ in range(3):
        (event,) = Training(tmp_path).judge(b=2e6, step=7)
        paths.append(event.evidence)
    first = str(evidence_folder(tmp_path, "run1", 3, 7))
    assert paths == [first, f"{first}-2", f"{first}-3"]
    assert all((Path(path) / "values.csv").is_file() for path in paths)


@pytest.mark.parametrize("name", ["a,b", 'quo"te', "two\nlines", "层.归一化", "$x_{y", "\udcff", "a" * 300])
def test_any_name_of_a_checkpoint_and_of_a_run_is_written(name, tmp_path):
    training = Training(tmp_path, replace(ORIGIN, run=name))
    (event,) = training.judge(b=2e6, names=("a", name))
    assert training.problems() == []
    folder = Path(event.evidence)
    with (folder / "values.csv").open(encoding="utf-8", newline="") as file:
        names = {row["checkpoint"] for row in csv.DictReader(file)}
    assert names == {"a", name.encode(errors="backslashreplace").decode()}
    assert json.loads((folder / "events.jsonl").read_text(encoding="utf-8"))["data"]["checkpoint"] == name


def test_a_folder_that_can_not_be_written_ends_no_training_and_is_counted():
    training = Training("/proc/no")  # root too may make no folder there
    events = training.judge(b=2e6)
    assert len(events) == 1
    assert training.monitor.status.dropped == {"Evidence": 1}
    assert training.monitor.status.evidence_dropped == 1
    (problem,) = training.problems()
    assert all(name in problem for name in ("Evidence", "/proc/no"))


def judge_with_little_room(folder, limit, results):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    training = Training(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    training.judge(b=2e6)
    left = list(training.folder().parent.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    training.judge(b=2e6)
    status = training.monitor.status
    results.put((left, status.evidence_dropped, status.dropped, training.bundles()))


@pytest.mark.parametrize("limit", [0, 300, 600])
def test_a_full_disk_leaves_no_half_bundle_and_the_next_one_is_written(limit, tmp_path):
    results = FORK.Queue()
    writer = FORK.Process(target=judge_with_little_room, args=(tmp_path, limit, results))
    writer.start()
    left, missed, dropped, bundles = results.get(timeout=60)
    writer.join(30)
    assert left == []
    assert (missed, dropped) == (1, {"Evidence": 1})
    assert bundles == ["rank3-step2"]


def write_until_killed(folder, ready):
    sink.MOST_BUNDLES = 100_000  # of this process alone: it never stops to write
    training = Training(folder)
    training.judge()
    ready.set()
    while True:
        training.judge(b=2e6)


def test_a_process_killed_at_any_time_leaves_whole_bundles_and_the_next_one_tidies_up(tmp_path):
    chance = random.Random(5)
    whole = left = 0
    for round_ in range(12):
        folder = tmp_path / str(round_)
        ready = FORK.Event()
        writer = FORK.Process(target=write_until_killed, args=(folder, ready))
        writer.start()
        assert ready.wait(60)
        time.sleep(chance.uniform(0.02, 0.2))
        writer.kill()
        writer.join(30)
        left += len(list(folder.glob("evidence/run1/.*")))
        after = Training(folder)
        assert list(folder.glob("evidence/run1/.*")) == []
        for bundle in folder.glob("evidence/run1/*"):
            whole += 1
            assert {path.name for path in bundle.iterdir()} == FILES
            Event.from_json((bundle / "events.jsonl").read_text())
        after.judge(b=2e6, step=1000)
    assert whole > 0
    assert left > 0


def test_half_bundles_of_this_rank_are_removed_and_those_of_others_stay(tmp_path):
    dead, foreign = (tmp_path / "evidence" / "run0" / f".rank{rank}-step2.part" for rank in (3, 30))
    for folder in (dead, foreign):
        folder.mkdir(parents=True)
        (folder / "values.csv").touch()
    Training(tmp_path)
    assert list(dead.parent.iterdir()) == [foreign]

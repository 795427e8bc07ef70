"""What a run records of its values, and what is read of it again."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

import asd.rundir.recording
from asd.config import Config
from asd.errors import ConfigError, StateError
from asd.exporters.run_files.values import STEPS, ValueRecorder, open_recording
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import CHECKSUM, Reading
from asd.rundir.names import value_files
from asd.rundir.recording import Recording

ORIGIN = Origin("job", 0, "host", "Ascend:0")


def config_of(folder, **changes):
    return Config(protection="document", enable=1, record=True, run_dir=str(folder), **changes)


def reading(name, size, **changes):
    return Reading(name, 4 * size)._replace(**changes)


def begun(folder, origin=ORIGIN, **changes):
    """A monitor that records."""
    config = config_of(folder, **changes)
    monitor = Monitor(config, origin, [ValueRecorder(config, origin)])
    monitor.begin()
    return monitor


def train(folder, steps, *, first=1, size=lambda step: 1.0, end=True, origin=ORIGIN, **options):
    monitor = begun(folder, origin)
    for step in range(first, first + steps):
        monitor.judge(step, [reading(name, size(step)) for name in ("a", "b")], **options)
    if end:
        monitor.end()
    return monitor


def steps_of(folder):
    return list(Recording(folder).steps())


def test_every_step_comes_back_with_its_values_without_loss_scale(tmp_path):
    train(tmp_path, 120, size=lambda step: 1024.0 * step, loss_scale=1024.0)
    steps = steps_of(tmp_path)
    assert [step.step for step in steps] == list(range(1, 121))
    assert steps[6].values == [("a", "B", 28.0), ("b", "B", 28.0)]
    assert len((tmp_path / "values-rank0.jsonl").read_text().splitlines()) == math.ceil(120 / STEPS)


def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path):
    sink = open_recording(replace(config_of(tmp_path), record=False), ORIGIN)
    Monitor(config_of(tmp_path), ORIGIN, [sink]).judge(1, [reading("a", 1.0)])
    assert value_files(tmp_path) == []
    assert Config.from_env({"ASD_OPTIONS": "record:1"}).record


def test_a_checkpoint_that_was_not_checked_or_holds_no_size_is_left_out(tmp_path):
    monitor = begun(tmp_path)
    monitor.judge(1, [reading("a", 1.0), reading("product", 0.5, kind=CHECKSUM)])
    monitor.judge(2, [reading("b", 2.0)])
    monitor.end()
    assert [[name for name, *_ in step.values] for step in steps_of(tmp_path)] == [["a"], ["b"]]


def test_what_is_not_finite_stays_so(tmp_path):
    monitor = begun(tmp_path, on_anomaly="log")
    monitor.judge(1, [reading("a", math.inf), reading("b", 1e39), reading("c", math.nan)])
    monitor.end()
    ((*_, a), (*_, b), (*_, c)) = steps_of(tmp_path)[0].values
    assert (a, b) == (math.inf, 4e39)
    assert math.isnan(c)


def test_flagged_and_refused_steps_say_so_also_when_the_event_comes_after_the_step(tmp_path):
    monitor = begun(tmp_path)
    for step, size in enumerate((1.0, 1e5, 1e7, 1.0, 1.0), 1):
        monitor.judge(step, [reading("a", size)], refused=step in (3, 4))
        if step == 5:
            monitor.judge_state(step, {"v": ({"max_v": math.inf}, {})})
    monitor.end()
    assert [step.left_out for step in steps_of(tmp_path)] == ["", "second", "first", "refused", "first"]


def test_a_resumed_training_appends_and_every_rank_has_a_file(tmp_path):
    train(tmp_path, 10)
    train(tmp_path, 10, first=6)
    train(tmp_path, 3, origin=replace(ORIGIN, rank=1))
    steps = [(step.rank, step.step) for step in steps_of(tmp_path)]
    assert steps == [(0, step) for step in [*range(1, 11), *range(6, 16)]] + [(1, 1), (1, 2), (1, 3)]


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.asd.rundir.test_recording import train
train(Path(sys.argv[1]), {steps}, end=False)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_whole_lines_and_the_next_one_goes_on_behind_a_torn_one(tmp_path):
    code = KILLED.format(steps=2 * STEPS + 10)
    own = [path for path in sys.path if "site-packages" not in path]  # level O1 of amp adds folders of MindSpore
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(own)}
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(steps_of(tmp_path)) == 2 * STEPS
    file = tmp_path / "values-rank0.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    assert len(steps_of(tmp_path)) == STEPS
    train(tmp_path, 5, first=51)
    recording = Recording(tmp_path)
    assert [step.step for step in recording.steps()] == [*range(1, STEPS + 1), *range(51, 56)]


def test_a_folder_without_recorded_values_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="RUN_DIR"):
            Recording(folder)


def good_line(**changes):
    head = {"asd_recording": 3, "run": "job", "rank": 0, "rule": "threshold", "detectors": [], "on_anomaly": "stop"}
    limits = {"upper": [100, 10], "sigma": [100, 10]}
    values = {"checkpoints": [["a", "B"]], "steps": [1], "left_out": {}, "values": [[2.0]]}
    return json.dumps({**head, **limits, **values, **changes}) + "\n"


@pytest.mark.parametrize(
    "line",
    [
        "[]\n",
        *(good_line(asd_recording=2), good_line(rank=-1), good_line(left_out={"1": "first"}), good_line(rule="magic")),
        *(good_line(values=[[1.0, 2.0]]), good_line(values=[[-1.0]])),
        *(good_line(steps=[1] * 10**6), good_line(steps=[1e400])),
        *(good_line(checkpoints=[["a", "X"]]), good_line(checkpoints=[["a", "B"], ["a", "B"]])),
    ],
)
def test_a_line_that_no_run_wrote_is_one_sentence(tmp_path, line):
    (tmp_path / "values-rank0.jsonl").write_text(line)
    with pytest.raises(StateError, match="values-rank0.jsonl, line 1 ") as caught:
        Recording(tmp_path)
    assert len(str(caught.value)) < 500 + len(str(tmp_path))


def test_a_line_without_end_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(asd.rundir.recording, "MAX_LINE", 1000)
    (tmp_path / "values-rank0.jsonl").write_text("x" * 5000)
    with pytest.raises(StateError, match="line 1 .* 1000 bytes"):
        Recording(tmp_path)


def test_a_full_disk_costs_the_values_and_is_told_but_the_training_goes_on(tmp_path):
    (tmp_path / "values-rank0.jsonl").symlink_to("/dev/full")
    monitor = train(tmp_path, 60)
    assert monitor.status.steps == 60
    assert monitor.status.problems >= 1

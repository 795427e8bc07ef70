"""A training that knows nothing of detection leaves the evidence of its anomaly."""

import json
from pathlib import Path

import pytest

FILES = {"config.json", "events.jsonl", "readings.json", "values.csv", "versions.json"}
both_modes = pytest.mark.parametrize("mode", ["graph", "pynative"])


def evidence(runner, done):
    """The folder that the event of step 4 names, the only one."""
    (event,) = [event for event in runner.events() if event["kind"] == "anomaly"]
    folder = runner.folder / event["evidence"]
    assert event["evidence"] == f"asd_run/evidence/{event['run']}/rank0-step4"
    assert f"evidence={event['evidence']} " in done.err
    assert list(folder.parent.iterdir()) == [folder]
    return folder


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@both_modes
@pytest.mark.parametrize("action", ["stop", "skip", "log"])
def test_a_first_level_anomaly_leaves_a_bundle(runner, mode, action):
    done = runner.asd_run("loops.py", "model", mode, 4, 4, ASD_ON_ANOMALY=action)
    assert done.code == (action == "stop")
    folder = evidence(runner, done)
    assert {path.name for path in folder.iterdir()} == FILES
    event = json.loads((folder / "events.jsonl").read_text().splitlines()[0])["data"]
    assert (event["step"], event["level"], event["refused"]) == (4, "first", action != "log")
    (reading,) = read(folder, "readings.json")
    assert reading["checkpoint"] == event["checkpoint"]
    assert read(folder, "config.json")["on_anomaly"] == action
    assert read(folder, "versions.json")["mindspore"]
    steps = [line.split(",")[0] for line in (folder / "values.csv").read_text().splitlines()]
    assert steps == ["step", "1", "2", "3", "4"]


def test_a_healthy_training_leaves_no_evidence(runner):
    done = runner.asd_run("loops.py", "cell", "graph", 4)
    assert done.code == 0
    assert not Path(runner.folder / "asd_run" / "evidence").exists()

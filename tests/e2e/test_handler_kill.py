"""The fault handler is killed at random moments, over and over, and yet does everything exactly once."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler.db.store import events_file
from asd.rundir.names import event_file
from tests.support.events import event_maker, growing
from tests.support.waiting import wait_for

GUILTY = {  # by the rule that finds them
    "persistent": ["Ascend:0", "Ascend:5"],
    "strikes": ["Ascend:1", "Ascend:6"],
    "transient": ["Ascend:2"],
}
HEALTHY = ["Ascend:3", "Ascend:4", "Ascend:7"]
KILLS = 15
PROGRAM = Path(__file__).parent / "programs" / "handler_with_markers.py"


made = event_maker(run="job", host="n1", value=growing, time=lambda step: time.time())


def event(device, step, **changes):
    return made(step, device=device, rank=int(device[-1]), **changes)


def story():
    """What happens, in order; steps of different devices differ, so nothing looks like one fault of many."""
    told = []
    for number, device in enumerate(GUILTY["persistent"]):
        step = 10 * number + 1
        told += [(device, step, {}), (device, step, {"kind": "replay", "verdict": "persistent"})]
    for number, device in enumerate(GUILTY["strikes"]):
        told += [(device, 100 + 10 * number + strike, {"checkpoint": name}) for strike in range(3) for name in "abc"]
    for device in GUILTY["transient"]:
        for strike in range(3):
            step = 200 + strike
            told += [(device, step, {}), (device, step, {"kind": "replay", "verdict": "transient"})]
    for number, device in enumerate(HEALTHY):  # two strikes, and three that are software
        told += [(device, 300 + 10 * number + strike, {}) for strike in range(2)]
        for strike in range(3):
            step = 400 + 10 * number + strike
            told += [(device, step, {"kind": "replay", "verdict": "software"}), (device, step, {})]
    return told


def is_decisive(device, step, changes):
    """Whether this is the event that takes a device out."""
    last = step % 10 == 2 and changes.get("checkpoint") == "c"
    return changes.get("verdict") == "persistent" or last or (step == 202 and changes.get("verdict") == "transient")


@pytest.mark.slow
def test_whatever_is_killed_each_guilty_device_is_isolated_once_and_no_healthy_one(tmp_path):
    random.seed(7)
    run_dir, engine = tmp_path / "run", tmp_path / "engine"
    engine.mkdir()
    logs = {number: EventLog(event_file(run_dir, number)) for number in range(8)}
    handler = start(run_dir, engine)
    told = story()
    decisive = [place for place, (device, step, changes) in enumerate(told) if is_decisive(device, step, changes)]
    kills = 2 * decisive + random.sample(range(len(told)), KILLS - 2 * len(decisive))
    for place, (device, step, changes) in enumerate(told):
        logs[int(device[-1])](event(device, step, **changes))
        if changes.get("checkpoint", "a") == "a":
            time.sleep(0.0 if place in kills else 0.11)  # closer ones would look like a burst
        for _ in range(kills.count(place)):
            settling = 0.3 if "checkpoint" in changes else 0.0
            time.sleep(settling + random.random() * 0.16)
            handler.kill()
            handler.communicate()
            handler = start(run_dir, engine)
    guilty = sorted(device for devices in GUILTY.values() for device in devices)
    wait_for(lambda: len(isolations(run_dir)) >= len(guilty))
    time.sleep(0.6)
    handler.terminate()
    handler.communicate()
    assert sorted(isolations(run_dir)) == guilty
    assert sorted(path.name for path in engine.iterdir()) == [f"n1 {device}" for device in guilty]
    for marker in engine.iterdir():
        assert len(marker.read_text().splitlines()) == 1, "it was isolated twice"
    published = read_events(events_file(run_dir))
    assert len({told.id for told in published}) == len(published)


def start(run_dir, engine):
    process = subprocess.Popen(
        [sys.executable, PROGRAM, run_dir, engine], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == "begun\n", process.communicate()
    return process


def isolations(run_dir):
    log = events_file(run_dir)
    return [told.device for told in read_events(log) if told.kind == "isolation"] if log.exists() else []

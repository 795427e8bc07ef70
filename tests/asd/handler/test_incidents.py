"""What nobody can judge counts once an incident; a case has named states, and sentences of before are taken over."""

import math
import sqlite3
from pathlib import Path

import pytest

from asd.handler import Policy
from asd.handler.db.cases import TRANSITIONS, Cases
from asd.isolator import Device
from tests.asd.handler.scene import DAY, HOUR, Clock, Engine, Scene, event

MANY = Policy(max_devices=99, max_percent=100)
ROW = range(41, 62)
APART = (100, 300, 900)
DEVICE = Device("node7", "Ascend:3", 3)


def after(steps, wait, *, replay="undetermined", first="anomaly", job="llama", **changes):
    """The scene after anomalies in these steps, each with its replay, where one is made, before or after it."""
    scene = Scene(MANY)
    for place, step in enumerate(steps):
        fields = {name: value(place) if callable(value) else value for name, value in changes.items()}
        told = [{}] + ([{"kind": "replay", "verdict": replay}] if replay else [])
        scene.clock.now += wait
        for each in told if first == "anomaly" else told[::-1]:
            scene.tell(step, **each, **fields, run=job(place) if callable(job) else job)
        scene.handler.tick()
    scene.after(31.0)
    return scene


@pytest.mark.parametrize(
    ("steps", "wait", "changes", "strikes"),
    [
        (ROW, 0.5, {}, 1),
        (ROW, 100.0, {}, 1),
        (ROW, 1.0, {"first": "replay"}, 1),
        (range(41, 400, 17), 0.5, {}, 1),
        (ROW, 1.0, {"replay": "", "refused": False}, 1),  # whose update was applied is not made again
        ((41, 141, 241), HOUR, {"replay": "", "incident": lambda place: event(41).id if place else ""}, 3),
        ((41, 141, 241), 500.0, {"replay": "", "incident": lambda place: event(41).id if place else ""}, 1),
        ((41, 41, 41), HOUR, {"job": "llama+{}".format, "value": lambda place: 2e6 + place}, 1),
        ((45, 41, 49), HOUR, {"job": "llama+{}".format, "value": lambda place: 2e6 + place}, 3),
        (APART, HOUR, {}, 3),
        (APART, HOUR, {"replay": "", "refused": False}, 3),
        (APART, HOUR, {"value": 5.0}, 1),
        (APART, HOUR, {"value": math.inf}, 3),
        (range(41, 150), 100.0, {}, 4),  # for three hours
        ((1, 2, 3), 1.0, {"replay": "transient"}, 3),
        ((1, 2, 3), 1.0, {"replay": ""}, 3),
    ],
)
def test_strikes_that_nobody_can_judge_count_once_an_incident(steps, wait, changes, strikes):
    scene = after(steps, wait, **changes)
    assert scene.record().strikes == strikes
    assert [call[:2] for call in scene.engine.calls] == [("isolate", DEVICE)] * (strikes >= 3)


@pytest.mark.parametrize("late", [False, True])
def test_what_nobody_can_judge_and_another_device_had_in_the_same_step_isolates_nobody(late):
    scene, told = Scene(MANY), []
    for step in APART:
        scene.clock.now += HOUR
        for device in ("Ascend:3", "Ascend:4"):
            now = {"device": device, "time": scene.clock.now}
            told += [event(step, **now), event(step, kind="replay", verdict="undetermined", **now)]
    mine = [each for each in told if each.device == "Ascend:3"]
    scene.handler.handle_many(mine if late else told)
    assert scene.after(31.0) == (["isolated"] if late else [])
    scene.handler.handle_many(told)
    scene.after(1.0)
    assert (scene.isolated, scene.record().strikes) == ([], 0)


def test_a_long_incident_keeps_little_and_pushes_out_no_strike_of_before():
    scene = Scene(MANY)
    for step in (1, 20):
        scene.raises(step, wait=DAY)
    before = scene.record().suspicion
    for step in range(1000, 1400):
        scene.raises(step, wait=1.0, refused=False)
    assert scene.rows("SELECT count(*) < 60 FROM strike WHERE revoked = ''") == [(1,)]
    assert scene.record().suspicion == pytest.approx(before, abs=0.01)


def test_every_state_of_a_case_is_reached_and_what_has_no_transition_is_an_error():
    reached = {state for following in TRANSITIONS.values() for state in following.values()}
    assert reached | {"dry"} == set(TRANSITIONS)
    scene = Scene()
    scene.replay("persistent")
    with scene.handler.store.transaction(), pytest.raises(KeyError):
        Cases(scene.handler.store).move(1, "held", scene.clock.now)


def test_a_database_of_the_version_before_is_taken_over(tmp_path):
    with sqlite3.connect(tmp_path / "h") as db:  # as the code of version 7 has made it
        db.executescript(Path(__file__).with_name("version7.sql").read_text())
    db.close()
    scene = Scene.__new__(Scene)
    scene.clock, scene.engine, scene.published, scene.policy = Clock(1700175538.0), Engine(), [], MANY
    scene.engine.ours = {("node7", f"Ascend:{number}") for number in (0, 4, 5, 6)}
    scene.path, scene.more = tmp_path / "h", {}
    scene.begin()
    assert scene.rows("SELECT device, state, cause, ending, wants_test FROM cases ORDER BY n") == [
        (1, "isolated", "strikes", "", 1),
        (5, "released", "replay", "quiet", 0),
        (6, "released", "replay", "quiet", 0),
        (7, "isolated", "replay", "", 1),
    ]
    assert {each.recovered_by for each in scene.published} == {"handler"}
    records = [scene.record(f"Ascend:{number}") for number in range(7)]
    assert [(each.strikes, each.suspicion > 0.9) for each in records] == [(0, n in (0, 1, 4, 5)) for n in range(7)]
    scene.passes("Ascend:0", "Ascend:6")
    assert scene.after(1.0) == ["released"] * 4
    assert scene.raises(9, "Ascend:0") == "waiting"  # its strikes of before count on

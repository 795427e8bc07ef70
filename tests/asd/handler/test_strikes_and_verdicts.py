"""What counts as a strike against a device, and what the verdict of a replay makes of it."""

import pytest

from asd.handler import Policy
from asd.isolator import Device
from tests.asd.handler.scene import DAY, HOUR, Scene, event


def test_three_strikes_isolate_after_the_settling_time_and_the_event_tells_of_the_last():
    scene = Scene()
    assert [scene.raises(step) for step in (1, 2, 3)] == ["strike", "strike", "waiting"]
    assert (scene.after(29.75), scene.isolated) == ([], [])
    assert scene.after(0.5) == ["isolated"]
    (told,) = scene.published
    assert (told.kind, told.assertion, told.step, told.evidence) == ("isolation", "occur", 3, "evidence/3")
    assert (told.key, told.time, told.verdict) == (event(3).id, scene.clock.now, "")
    assert scene.after(1000.0) == []
    ((what, device, _reason, cause),) = scene.engine.calls
    assert (what, device, cause) == ("isolate", Device("node7", "Ascend:3", 3), event(3).id)


def test_where_no_settling_time_is_wanted_the_strike_itself_is_answered_with_the_isolation():
    scene = Scene(Policy(strikes=1, settle_seconds=0))
    assert (scene.raises(1), scene.isolated) == ("isolated", ["Ascend:3"])


# Verdicts


def test_a_verdict_that_comes_again_days_later_is_counted_once():
    scene, verdicts = Scene(), ("persistent", "transient", "software", "undetermined")
    told = [event(step, kind="replay", verdict=verdict) for step, verdict in enumerate(verdicts, 1)]
    told.append(event(0, kind="stress", checkpoint="", key="test"))
    for _ in range(3):
        scene.handler.handle_many(told)
        assert scene.record().verdicts == {**dict.fromkeys(verdicts, 1), "persistent": 2}
        scene.after(2 * DAY)


def test_a_transient_verdict_confirms_the_strike_and_adds_none():
    scene = Scene()
    for step in (1, 2):
        scene.raises(step)
        assert scene.replay("transient", step).action == "strike"
    scene.raises(3)
    assert scene.isolated == []
    scene.after(29.0)
    assert scene.replay("transient", 3).action == "isolated"  # confirmed: no reason to wait for others


@pytest.mark.parametrize("verdict_first", [False, True])
def test_a_software_verdict_revokes_the_strikes_of_its_step_whatever_comes_first(verdict_first):
    scene = Scene(Policy(strikes=1))
    if verdict_first:
        scene.replay("software", 5, device="Ascend:1")
        assert scene.raises(5, wait=1.0) == "noted"
    else:
        assert scene.raises(5) == "waiting"
        assert scene.replay("software", 5, device="Ascend:1").action == "software"
    assert scene.after(HOUR) == []
    assert scene.isolated == []


@pytest.mark.parametrize("order", [("software", "transient"), ("transient", "software")])
def test_of_two_verdicts_about_the_same_step_of_a_device_software_holds(order):
    scene = Scene(Policy(strikes=1, max_devices=0))
    for verdict, key in zip(order, "xy", strict=True):
        scene.replay(verdict, 5, key=key)
    assert scene.record().strikes == 0

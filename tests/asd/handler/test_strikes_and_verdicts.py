"""What counts as a strike against a device, and what the verdict of a replay makes of it."""

import itertools

import pytest

from asd.handler import Policy
from asd.isolator import Device
from tests.asd.handler.scene import HOUR, Scene, event


def test_three_strikes_isolate_once_nobody_else_has_raised_for_the_settling_time():
    scene = Scene()
    assert [scene.raises(step) for step in (1, 2, 3)] == ["strike", "strike", "waiting"]
    assert scene.after(29.9) == []
    assert scene.isolated == []
    assert scene.after(0.2) == ["isolated"]
    assert scene.isolated == ["Ascend:3"]
    assert scene.after(1000.0) == []


def test_the_isolation_event_tells_of_the_strike_that_was_one_too_many():
    scene = Scene()
    for step in (1, 2, 3):
        scene.raises(step)
    scene.after(31.0)
    (told,) = scene.published
    assert (told.kind, told.assertion, told.step, told.evidence) == ("isolation", "occur", 3, "evidence/3")
    assert (
        told.reason == "Ascend:3 on node7: it has 3 strikes within 480 minutes, so it is isolated by the isolator set."
    )
    assert (told.key, told.time, told.verdict) == (event(3).id, scene.clock.now, "")
    (call,) = scene.engine.calls
    assert call == (
        "isolate",
        Device("node7", "Ascend:3", 3),
        "Ascend:3 on node7: it has 3 strikes within 480 minutes.",
        event(3).id,
    )


def test_all_anomalies_of_one_step_of_one_run_are_one_strike():
    scene = Scene()
    for step, checkpoint in itertools.product((1, 2), "abcd"):
        assert scene.raises(step, checkpoint=checkpoint) == "strike"
    assert scene.after(HOUR) == []
    assert scene.raises(1, run="other") == "waiting"


def test_ranks_that_share_a_device_have_strikes_of_their_own():
    scene = Scene(Policy(many_devices=9))
    for rank, step in ((0, 1), (1, 2), (0, 3), (1, 4)):
        assert scene.raises(step, device="CPU:0", rank=rank) == "strike"
    assert scene.raises(5, device="CPU:0", rank=1) == "waiting"
    assert scene.after(31.0) == ["isolated"]
    assert scene.engine.calls[0][1] == Device("node7", "CPU:0", 1)


def test_anomalies_whose_step_is_not_known_are_one_strike_while_they_are_close():
    scene = Scene()
    for wait, action in ((0.0, "strike"), (200.0, "strike"), (301.0, "strike"), (302.0, "waiting")):
        assert scene.raises(0, wait=wait, key=f"after {wait}") == action


# Verdicts


def test_a_persistent_verdict_isolates_at_once():
    scene = Scene()
    scene.raises(7)
    decision = scene.replay("persistent", 7)
    assert decision.action == "isolated"
    assert decision.reason == (
        "Ascend:3 on node7: the replay of step 7 of llama found persistent hardware, so it is isolated by the isolator "
        "set."
    )
    assert scene.isolated == ["Ascend:3"]
    assert [told.verdict for told in scene.published] == ["persistent"]


def test_a_transient_verdict_confirms_the_strike_and_adds_none():
    scene = Scene()
    for step in (1, 2):
        scene.raises(step)
        assert scene.replay("transient", step).action == "strike"
    scene.raises(3)
    assert scene.isolated == []
    scene.after(29.0)
    assert scene.replay("transient", 3).action == "isolated"  # confirmed: no reason to wait for others


def test_a_transient_verdict_whose_anomaly_never_came_is_a_strike():
    scene = Scene()
    assert [scene.replay("transient", step).action for step in (1, 2, 3)] == ["strike", "strike", "isolated"]


@pytest.mark.parametrize("verdict_first", [False, True])
def test_a_software_verdict_revokes_the_strikes_of_its_step_whatever_comes_first(verdict_first):
    scene = Scene(Policy(strikes=1))
    if verdict_first:
        scene.replay("software", 5, device="Ascend:1")
        assert scene.raises(5, wait=1.0) == "noted"
    else:
        assert scene.raises(5) == "waiting"
        decision = scene.replay("software", 5, device="Ascend:1")
        assert decision.reason == (
            "Ascend:1 on node7: the replay of step 5 of llama found software or data: 1 more strike of this step "
            "revoked, nobody is isolated for it."
        )
    assert scene.after(HOUR) == []
    assert scene.isolated == []


@pytest.mark.parametrize("order", [("software", "transient"), ("transient", "software")])
def test_of_two_verdicts_about_the_same_step_of_a_device_software_holds(order):
    scene = Scene(Policy(strikes=1, max_devices=0))
    for verdict, key in zip(order, "xy", strict=True):
        scene.replay(verdict, 5, key=key)
    assert scene.handler.triage.strikes.of(1, scene.clock.now) == (0, 0, 0.0)


@pytest.mark.parametrize("software_first", [False, True])
def test_a_device_whose_hardware_failed_keeps_its_strike_when_anothers_replay_finds_software(software_first):
    scene = Scene(Policy(strikes=2))
    replays = [("transient", "Ascend:3"), ("software", "Ascend:4")]
    for verdict, device in reversed(replays) if software_first else replays:
        scene.replay(verdict, 5, device=device)
    assert scene.replay("transient", 9).action == "isolated"


def test_an_undetermined_verdict_leaves_the_strike():
    scene = Scene()
    scene.raises(1)
    assert scene.replay("undetermined", 1).action == "noted"
    scene.raises(2)
    assert scene.raises(3) == "waiting"

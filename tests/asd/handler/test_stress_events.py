"""What a stress test says of a device."""

from asd import Level
from asd.isolator import Device
from tests.asd.handler.scene import Scene, event


def test_a_device_that_fails_its_stress_test_is_isolated_at_once():
    scene = Scene()
    assert scene.stress(failed=True).action == "isolated"
    assert scene.isolated == ["Ascend:3"]
    (told,) = scene.published
    assert (told.kind, told.verdict) == ("isolation", "persistent")
    assert (scene.record().verdicts["persistent"], scene.record().sound) == (1, False)
    assert (
        told.reason == "Ascend:3 on node7: it computed wrongly in a stress test, so it is isolated by the isolator set."
    )


def test_a_device_that_passes_its_stress_test_keeps_its_strikes():
    scene = Scene()
    assert [scene.raises(step) for step in (1, 2)] == ["strike", "strike"]
    scene.clock.now += 1.0
    decision = scene.stress(failed=False)
    assert (decision.action, decision.case) == ("passed", 0)
    assert decision.reason == "Ascend:3 on node7: it made no mistake in a stress test, its strikes stay."
    record = scene.record()
    assert (record.tested, record.sound, record.strikes) == (scene.clock.now, True, 2)
    assert scene.raises(3) == "waiting"
    assert scene.after(31.0) == ["isolated"]


def test_a_recovery_with_a_clock_that_went_ahead_hides_no_later_strike():
    scene = Scene()
    scene.handler.handle(event(2, kind="recovery", level=Level.NORMAL, time=scene.clock.now + 1e6))
    assert [scene.raises(step) for step in (1, 2, 3)] == ["strike", "strike", "waiting"]


def test_a_stress_test_that_knows_no_rank_leaves_the_known_one():
    scene = Scene()
    scene.raises(1)
    assert scene.stress(failed=True, rank=-1).action == "isolated"
    assert scene.engine.calls[0][1] == Device("node7", "Ascend:3", 3)

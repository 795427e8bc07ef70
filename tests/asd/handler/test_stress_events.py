"""What a stress test says of a device."""

from asd import Level
from asd.isolator import Device
from tests.asd.handler.scene import FORGETS, HOUR, START, Scene, event


def test_a_device_that_fails_its_stress_test_is_isolated_at_once():
    scene = Scene()
    assert scene.stress(failed=True).action == "isolated"
    assert scene.isolated == ["Ascend:3"]
    (told,) = scene.published
    assert (told.kind, told.verdict) == ("isolation", "persistent")
    assert (
        told.reason == "Ascend:3 on node7: it computed wrongly in a stress test, so it is isolated by the isolator set."
    )


def test_a_device_that_passes_its_stress_test_has_no_strikes_from_before():
    scene = Scene(FORGETS)
    assert [scene.raises(step) for step in (1, 2)] == ["strike", "strike"]
    scene.clock.now += 1.0
    decision = scene.stress(failed=False)
    assert (decision.action, decision.case) == ("cleared", 0)
    assert decision.reason == "Ascend:3 on node7: it made no mistake in a stress test, its strikes count no more."
    assert [scene.raises(step) for step in (3, 4)] == ["strike", "strike"]
    assert scene.raises(5) == "waiting"
    assert scene.after(31.0) == ["isolated"]


def test_strikes_of_other_devices_and_from_after_the_stress_test_still_count():
    scene = Scene(FORGETS)
    began = scene.clock.now
    for step in (1, 2):
        scene.raises(step)
        scene.raises(10 + step, device="Ascend:5")
    assert scene.stress(failed=False, time=began + 150.0).action == "cleared"  # after the first, before the second
    tested, other = scene.record(), scene.record("Ascend:5")
    assert (tested.strikes, tested.tested, tested.sound) == (1, began + 150.0, True)
    assert (other.strikes, other.tested, other.sound) == (2, 0.0, False)


def test_a_recovery_with_a_clock_that_went_ahead_hides_no_later_strike():
    scene = Scene()
    scene.handler.handle(event(2, kind="recovery", level=Level.NORMAL, time=scene.clock.now + 1e6))
    assert [scene.raises(step) for step in (1, 2, 3)] == ["strike", "strike", "waiting"]


def test_a_passed_stress_test_gives_no_isolated_device_back():
    scene = Scene(FORGETS)
    scene.replay("persistent")
    decision = scene.stress(failed=False)
    assert (decision.action, decision.case) == ("cleared", 1)
    assert decision.reason.endswith("its strikes count no more, but it stays out: its case is isolated.")
    scene.after(3600.0)
    assert scene.isolated == ["Ascend:3"]


def test_the_verdict_of_a_replay_from_before_a_passed_stress_test_comes_too_late():
    scene = Scene(FORGETS)
    scene.stress(failed=False)
    assert scene.replay("persistent", time=scene.clock.now).action == "stale"
    assert scene.replay("persistent", step=2, time=scene.clock.now + 0.1).action == "isolated"


def test_a_failed_stress_test_from_before_the_first_start_isolates_nobody_and_a_double_is_one():
    scene = Scene()
    assert scene.stress(failed=True, time=START - HOUR).action == "stale"
    assert scene.stress(failed=True, time=START - HOUR).action == "duplicate"
    record = scene.record()
    assert (record.verdicts["persistent"], record.sound, record.state) == (1, False, "in use")


def test_a_stress_test_that_knows_no_rank_leaves_the_known_one():
    scene = Scene()
    scene.raises(1)
    assert scene.stress(failed=True, rank=-1).action == "isolated"
    assert scene.engine.calls[0][1] == Device("node7", "Ascend:3", 3)

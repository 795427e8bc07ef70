"""What a stress test says of a device."""

from asd.isolator import Device
from tests.asd.handler.scene import DAY, HOUR, Scene, event


def test_a_device_that_fails_its_stress_test_is_isolated_at_once():
    scene = Scene()
    scene.raises(1)
    assert scene.stress(failed=True, rank=-1).action == "isolated"
    assert scene.engine.calls[0][1] == Device("node7", "Ascend:3", 3)  # whose rank was known
    (told,) = scene.published
    assert (told.kind, told.verdict) == ("isolation", "persistent")
    assert (scene.record().verdicts["persistent"], scene.record().sound) == (1, False)
    assert scene.rows("SELECT cause FROM cases") == [("stress",)]


def test_a_device_that_passes_its_stress_test_keeps_its_strikes():
    scene = Scene()
    assert [scene.raises(step) for step in (1, 2)] == ["strike", "strike"]
    scene.clock.now += 1.0
    assert scene.stress(failed=False).action == "passed"
    record = scene.record()
    assert (record.tested, record.sound, record.strikes) == (scene.clock.now, True, 2)
    assert scene.raises(3) == "waiting"
    assert scene.after(31.0) == ["isolated"]


def test_a_recovery_with_a_clock_that_went_ahead_hides_no_later_strike():
    scene = Scene()
    scene.handler.handle(event(2, kind="recovery", recovered_by="person", time=scene.clock.now + 1e6))
    assert [scene.raises(step) for step in (1, 2, 3)] == ["strike", "strike", "waiting"]


def test_a_test_that_was_passed_with_a_clock_that_went_ahead_releases_no_device_that_fails_later():
    scene = Scene()
    scene.stress(failed=False, time=scene.clock.now + 30 * DAY)
    scene.clock.now += HOUR
    assert scene.replay("persistent").action == "isolated"
    assert scene.after(2 * DAY) == ["test-wanted"]

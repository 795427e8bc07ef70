"""The engine fails or refuses: what is tried again, and what is said."""

import time

import pytest

from asd.handler import Policy
from asd.handler.act.release import ask_release, drop_verdict
from tests.asd.handler.scene import HOUR, Scene, breaker_scene, failure


@pytest.mark.parametrize("answers", [False, True])
def test_a_slow_engine_is_waited_for_once_however_many_devices_there_are(tmp_path, monkeypatch, answers):
    monkeypatch.setattr("asd.handler.act.executor._SLOW_SECONDS", 0.02)
    scene, calls = Scene(Policy(max_devices=21), tmp_path / "h.sqlite"), []
    for number in range(20):
        assert scene.replay("persistent", device=f"Ascend:{number}").action == "isolated"

    def hangs(device):
        calls.append(device)
        time.sleep(0.05)
        raise failure(retry=not answers)

    scene.engine.held = hangs
    scene.restart()
    assert scene.replay("persistent", device="Ascend:20").action == ("failed" if answers else "isolating")
    assert len(calls) == 1 + answers
    time.sleep(0.3)
    scene.after(700.0)
    assert len(calls) == 2 + 2 * answers
    scene.handler.tick(waits=False)  # nothing comes later, as with --once
    assert (len(calls) > 20) == answers


def test_a_slow_engine_is_asked_about_one_device_after_the_other(monkeypatch):
    monkeypatch.setattr("asd.handler.act.executor._SLOW_SECONDS", 0.01)
    scene, calls = breaker_scene(2, max_devices=4), []
    scene.engine.others = {("node7", "Ascend:2")}
    assert scene.replay("persistent", device="Ascend:2").action == "others"
    held = scene.engine.held
    scene.engine.held = lambda device: (calls.append(device.device), time.sleep(0.02), held(device))[2]
    for _ in range(2):
        time.sleep(0.15)
        scene.after(700.0)
    assert sorted(calls) == ["Ascend:0", "Ascend:1", "Ascend:2", "Ascend:2"]
    assert scene.replay("persistent", device="Ascend:3").action == "isolated"


def test_a_failing_engine_is_tried_again_with_growing_pauses():
    scene = Scene()
    scene.engine.failures = [failure() for _ in range(4)] + [OSError("broken")]
    assert scene.replay("persistent").action == "isolating"
    outcome = [scene.after(1.0) for _ in range(31)]
    tries = [second for second, actions in enumerate(outcome, 1) if actions]
    assert tries == [1, 3, 7, 15, 31]
    actions = [outcome[second - 1] for second in tries]
    assert actions == [*[["isolating"]] * 3, ["failed"], ["isolated"]]
    assert len(scene.published) == 1


def test_a_refused_isolation_counts_for_the_breaker_until_it_is_dropped():
    scene = Scene(Policy(max_devices=1))
    scene.engine.failures = [failure("no such node", retry=False)]
    assert scene.replay("persistent").action == "failed"
    assert scene.replay("persistent", device="Ascend:4").action == "breaker"
    assert drop_verdict(scene.handler.store, 1, scene.clock.now)
    scene.reset_breaker()
    scene.clock.now += 1.0
    assert scene.replay("persistent", device="Ascend:5").action == "isolated"


def test_a_refusal_is_reported_at_once_and_tried_again_as_long_as_the_verdict_stands():
    scene = Scene()
    scene.engine.failures = [failure("answered 403", retry=False) for _ in range(20)]
    assert scene.replay("persistent").action == "failed"
    outcome = [scene.after(10.0) for _ in range(6 * 24)]
    assert {action for actions in outcome for action in actions} == {"isolating"}
    record = scene.record()
    assert (record.state, record.error, record.attempts) == ("isolating", "answered 403", 12)
    assert scene.clock.now < record.next_try <= scene.clock.now + 300.0
    assert (scene.handler.engine.failed_tries, scene.published) == (12, [])
    scene.engine.failures.clear()
    assert scene.after(300.0) == ["isolated"]
    assert (scene.isolated, [told.kind for told in scene.published]) == (["Ascend:3"], ["isolation"])


def test_a_handler_that_is_started_anew_tries_at_once_what_was_refused(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.engine.failures = [failure("answered 401", retry=False) for _ in range(12)]
    scene.replay("persistent")
    for _ in range(11):
        scene.after(300.0)
    scene.clock.now += 1.0
    scene.restart()
    assert scene.isolated == ["Ascend:3"]


def test_a_dropped_verdict_is_not_tried_again_and_its_strikes_count_no_more():
    scene = Scene()
    scene.raises(1)
    scene.engine.failures = [failure("no such node", retry=False)]
    scene.replay("persistent")
    assert drop_verdict(scene.handler.store, 1, scene.clock.now)
    assert not drop_verdict(scene.handler.store, 1, scene.clock.now)
    assert scene.after(HOUR) == []
    assert (scene.published, len(scene.engine.calls)) == ([], 1)
    assert (scene.record().state, scene.record().strikes) == ("in use", 0)
    assert scene.replay("persistent", 2).action == "isolated"
    assert not drop_verdict(scene.handler.store, 1, scene.clock.now)  # what is out is given back by the engine


def test_a_release_that_the_engine_can_never_do_is_dropped_and_told():
    scene = breaker_scene(1)
    scene.engine.failures = [failure("there is no node", retry=False) for _ in range(99)]
    assert ask_release(scene.handler.store, 1, scene.clock.now) == "isolated"
    assert scene.after(1.0) == ["failed"]
    assert drop_verdict(scene.handler.store, 1, scene.clock.now)
    assert (scene.after(HOUR), scene.record("Ascend:0").state) == ([], "in use")
    assert [told.kind for told in scene.published] == ["isolation", "recovery"]


def test_a_new_fault_ends_a_release_that_the_engine_refuses():
    scene = breaker_scene(1)
    scene.passes("Ascend:0")
    scene.engine.failures = [failure("no right to", retry=False)]
    assert scene.after(48 * HOUR) == ["failed"]
    scene.clock.now += 1.0
    assert scene.replay("persistent", 9, device="Ascend:0").action == "merged"
    scene.after(1.0)
    assert scene.isolated == ["Ascend:0"]
    assert [told.kind for told in scene.published] == ["isolation"]
    assert scene.after(47 * HOUR) == []


@pytest.mark.parametrize("was_written", [False, True])
def test_an_event_that_cannot_be_published_is_published_later_and_once(was_written):
    scene = Scene(already=lambda identity: identity in {each.id for each in scene.published})

    def fail(told):
        scene.published.extend([told] if was_written else [])
        raise OSError("disk full")

    scene.handler.engine._publish = fail
    assert scene.replay("persistent").action == "isolated"
    assert scene.after(0.0) == ["problem"]
    scene.handler.engine._publish = scene.published.append
    scene.after(601.0)
    assert [told.kind for told in scene.published] == ["isolation"]

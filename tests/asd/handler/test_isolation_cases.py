"""A device that is out: who holds it, when it is released, and a dry run."""

import pytest

from asd.handler import Policy, Store
from asd.handler.act.release import ask_release, drop_verdict
from tests.asd.handler.scene import HOUR, Engine, Scene, breaker_scene, event, failure

# Ownership


def test_what_others_hold_is_left_alone_and_taken_out_when_they_give_it_back(tmp_path):
    scene, asked = Scene(path=tmp_path / "h.sqlite"), []
    held = scene.engine.held
    scene.engine.held = lambda device: (asked.append(device), held(device))[1]
    scene.engine.others.add(("node7", "Ascend:3"))
    assert scene.replay("persistent", 1).action == "others"
    assert (scene.record().state, scene.record().isolated_by, scene.record().healthy) == ("others", "others", False)
    assert scene.replay("persistent", 2).action == "merged"
    assert (scene.engine.calls, len(asked)) == ([], 1)  # for a minute nobody asks again
    assert (scene.after(61.0), len(asked)) == ([], 2)
    scene.restart()
    scene.engine.others.clear()
    assert scene.after(61.0) == ["isolated"]
    assert [told.kind for told in scene.published] == ["isolation"]


@pytest.mark.parametrize("how", ["test", "drop", "release"])
def test_what_others_hold_stays_in_use_once_a_test_was_passed_or_a_person_says_so(how):
    scene = Scene()
    scene.engine.others.add(("node7", "Ascend:3"))
    assert scene.replay("persistent", 1).action == "others"
    scene.clock.now += 30.0
    if how == "test":
        assert scene.stress(failed=False).action == "passed"
    else:
        {"drop": drop_verdict, "release": ask_release}[how](scene.handler.store, 1, scene.clock.now)
        scene.handler.tick()
    scene.engine.others.clear()
    assert scene.after(120.0) == []
    assert scene.isolated == []
    assert scene.record().state == "in use"


def test_what_others_took_over_is_not_released():
    scene = breaker_scene(1)
    scene.engine.others.add(("node7", "Ascend:0"))
    assert scene.after(48 * HOUR) == ["others"]
    assert [call[0] for call in scene.engine.calls] == ["isolate"]
    assert [told.kind for told in scene.published] == ["isolation"]


def test_a_case_takes_over_that_the_hardware_is_broken_for_good():
    scene = Scene()
    for step in (1, 2, 3):
        scene.raises(step)
    assert scene.after(31.0) == ["isolated"]
    for step, verdict in enumerate(("transient", "persistent", "transient"), start=1):  # the gravest stays
        assert scene.replay(verdict, step).action == "merged"
    scene.engine.ours.clear()
    assert scene.after(601.0) == ["released"]
    assert [told.verdict for told in scene.published] == ["", "persistent"]


def test_of_the_cases_of_a_device_the_open_one_takes_in_its_faults_though_a_later_one_has_ended():
    scene = Scene()
    for step in (1, 2):
        scene.replay("persistent", step, wait=1.0)
        scene.engine.ours.clear()
        assert scene.after(601.0) == ["released"]
    scene.rows("UPDATE cases SET closed = NULL, state = 'isolated' WHERE n = 1")  # as after what a predecessor left
    assert scene.replay("persistent", 3, wait=1.0).action == "merged"


# Release


def test_a_release_time_of_zero_means_by_hand_only():
    scene = breaker_scene(1, release_after_seconds=0)
    assert scene.after(10_000 * HOUR) == []


def test_a_verdict_from_before_the_release_does_not_isolate_again():
    scene = breaker_scene(1, release_after_seconds=HOUR)
    late = event(77, device="Ascend:0", kind="replay", verdict="persistent", time=scene.clock.now + 5.0)
    scene.passes("Ascend:0")
    assert scene.after(HOUR) == ["released"]
    assert scene.handler.handle(late).action == "stale"


@pytest.mark.parametrize(("fault", "outcome"), [("persistent", ["isolated"]), ("transient", []), ("", [])])
def test_a_fault_soon_after_a_release_in_the_scheduler_is_not_taken_for_one_before_it(fault, outcome, monkeypatch):
    scene = breaker_scene(1)
    scene.after(700.0)  # it is seen to be isolated
    scene.engine.ours.clear()
    scene.tell(8, "Ascend:0", wait=100.0)
    if fault:
        scene.replay(fault, 9, "Ascend:0")
    with monkeypatch.context() as patch:
        patch.setattr(scene.engine, "held", None)  # a look that fails is none
        scene.after(501.0)
    assert scene.after(601.0) == ([] if outcome else ["released"])
    assert scene.after(1.0) == outcome
    assert (bool(scene.isolated), scene.record("Ascend:0").strikes > 0) == (bool(outcome), True)


# Dry run


def test_a_dry_run_decides_and_touches_nothing():
    scene = Scene(Policy(dry_run=True))
    assert scene.replay("persistent").action == "would-isolate"
    assert scene.replay("persistent", 2).action == "merged"
    for step in (1, 2, 3):
        scene.raises(step, "Ascend:4")
    assert scene.after(31.0) == ["would-isolate"]
    assert scene.replay("persistent", 9, "Ascend:5").action == "breaker"
    scene.passes("Ascend:3", "Ascend:4")
    assert scene.after(48 * HOUR) == ["released", "released"]
    assert (scene.engine.calls, scene.published) == ([], [])


@pytest.mark.parametrize(("dry", "told"), [(True, []), (False, ["", "person"])])
def test_what_a_dry_run_or_the_isolator_none_decided_is_not_done_by_the_next_start(tmp_path, dry, told):
    scene = Scene(Policy(dry_run=dry), tmp_path / "h.sqlite")
    scene.engine.name = "none"
    scene.replay("persistent")
    scene.engine = Engine()
    scene.restart(Policy())
    assert (scene.after(0.0), scene.rows("SELECT ending FROM cases")) == (["released"], [("restart",)])
    assert ([each.recovered_by for each in scene.published], scene.engine.calls) == (told, [])
    assert scene.replay("persistent", 2, wait=1.0).action == "isolated"
    assert scene.isolated == ["Ascend:3"]


def test_a_device_that_another_engine_took_out_is_neither_taken_for_free_nor_released(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.replay("persistent")
    scene.engine = Engine()
    scene.engine.name = "other"
    scene.restart()
    assert scene.after(0.0) == ["problem"]
    assert scene.after(601.0) == []
    assert scene.after(48 * HOUR) == []
    assert scene.engine.calls == []


@pytest.mark.parametrize("undo", [ask_release, drop_verdict])
def test_what_a_person_undoes_while_the_engine_isolates_is_undone_afterwards(tmp_path, undo):
    scene = Scene(path=tmp_path / "h.sqlite")
    isolate = scene.engine.isolate

    def slow(*call):
        isolate(*call)
        other = Store(scene.path)
        assert undo(other, 1, scene.clock.now)
        other.close()

    scene.engine.isolate = slow
    assert scene.replay("persistent").action == "isolated"
    assert scene.after(1.0) == ["released"]
    assert scene.isolated == []
    assert [told.kind for told in scene.published] == ["isolation", "recovery"]


def test_an_isolation_that_is_given_up_before_it_was_done_is_told_to_nobody(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.engine.failures = [failure()]
    scene.replay("persistent")
    ask_release(scene.handler.store, 1, scene.clock.now)
    assert scene.after(1.0) == ["released"]
    assert (scene.published, scene.isolated) == ([], [])


def test_a_release_that_is_refused_is_said_once_and_tried_again():
    scene = breaker_scene(1)
    scene.passes("Ascend:0")
    scene.engine.failures = [failure("no right to", retry=False) for _ in range(5)]
    assert scene.after(48 * HOUR) == ["failed"]
    assert [scene.after(50.0) for _ in range(5)] == [["releasing"]] * 4 + [["released"]]
    assert [told.kind for told in scene.published] == ["isolation", "recovery"]

"""The memory of months: what strikes count long after their window, and what makes them count less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.handler import Policy
from asd.handler.device_record import policy_of
from asd.isolator import Device
from tests.asd.handler.scene import DAY, HOUR, Scene


def score(scene):
    return scene.record().suspicion


def test_a_device_that_errs_every_few_days_is_taken_out_though_no_window_holds_three_strikes():
    scene = Scene()
    answers = [(scene.raises(step, wait=5 * DAY), scene.after(31.0), score(scene)) for step in range(1, 5)]
    told = [actions for *actions, _ in answers]
    assert told == [*[["strike", []]] * 3, ["waiting", ["isolated"]]]
    expected = [sum(0.5 ** ((5 * age - 1 / 3) / 30) for age in range(1, number)) + 1 for number in range(1, 5)]
    assert [suspicion for *_, suspicion in answers] == pytest.approx(expected, abs=2e-3)


def taken_out(ahead=0.0):
    scene = Scene()
    for step in (1, 2, 3):
        scene.raises(step, time=scene.clock.now + 100.0 + ahead)
    assert scene.after(31.0) == ["isolated"]
    return scene


def test_a_device_that_is_out_is_given_back_after_a_test_that_it_passes_not_after_a_silence_alone():
    scene = taken_out()
    assert scene.after(48 * HOUR - 1.0) == []
    scene.clock.now += 1.0
    (asked,) = scene.handler.tick()
    assert (asked.action, asked.device) == ("test-wanted", Device("node7", "Ascend:3", 3))
    assert scene.after(90 * DAY) == []  # asked for once
    assert scene.rows("SELECT cause, wants_test FROM cases") == [("strikes", 1)]
    scene.stress(failed=False)
    assert scene.after(1.0) == ["released"]
    assert scene.isolated == []


def test_a_test_that_was_passed_before_the_last_fault_gives_nothing_back_and_one_since_then_needs_no_other():
    scene = taken_out()
    scene.stress(failed=False)
    scene.clock.now += HOUR
    assert scene.raises(5) == "merged"
    assert scene.after(48 * HOUR) == ["test-wanted"]
    scene.stress(failed=False)
    scene.clock.now += 1.0
    assert scene.raises(6) == "merged"  # no test is asked for as long as this fault is young
    assert scene.rows("SELECT wants_test FROM cases") == [(0,)]
    scene.clock.now += 1.0
    scene.stress(failed=False)
    assert scene.after(47 * HOUR) == []
    assert scene.after(HOUR) == ["released"]


def test_a_device_that_the_handler_gave_back_is_out_again_with_the_next_strike():
    scene = taken_out()
    scene.clock.now += 1.0
    scene.stress(failed=False)
    assert scene.after(48 * HOUR) == ["released"]
    assert score(scene) == pytest.approx(3 * 0.5 ** (40 / 24 / 30), abs=1e-2)
    assert scene.raises(4) == "waiting"
    assert scene.after(31.0) == ["isolated"]


def test_a_device_that_people_gave_back_begins_anew():
    scene = taken_out(ahead=50.0)
    scene.engine.ours.clear()  # by the engine's own means
    assert scene.after(700.0) == ["released"]
    assert [told.recovered_by for told in scene.published] == ["", "person"]
    assert scene.rows("SELECT ending FROM cases") == [("engine",)]
    assert score(scene) == 0.0
    assert scene.raises(4) == "strike"


def test_months_are_remembered_over_a_restart(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.raises(1)
    scene.after(31.0)
    scene.clock.now += 20 * DAY
    scene.restart()
    scene.after(0.0)
    assert score(scene) == pytest.approx(0.5 ** ((20 - 1 / 3) / 30), abs=1e-3)
    assert policy_of(scene.handler.store) == scene.policy


@given(st.lists(st.floats(0, 300), min_size=1, max_size=40), st.floats(0, 300))
def test_suspicion_only_fades_and_is_never_less_than_what_the_published_rule_counts(ages, later):
    policy = Policy()
    weights = [policy.weight(age * DAY) for age in ages]
    assert all(0 <= weight <= 1 for weight in weights)
    assert all(policy.weight((age + later) * DAY) <= weight for age, weight in zip(ages, weights, strict=True))
    assert sum(weights) >= sum(age * DAY < policy.window_seconds for age in ages)

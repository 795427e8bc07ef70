"""What each part of detection takes of a step's time, as it was measured."""

import pytest

from asd.rules.step.budget import TimeBudget


def taken(step=1.0, places=0.0, state=0.0):
    budget = TimeBudget(0.03)
    budget.note(step_seconds=step, places_seconds=places)
    return budget.taken(state_seconds=state, every=16)


def test_before_the_first_step_nothing_is_known():
    assert TimeBudget(0.5).taken(state_seconds=0.1, every=16) == {}


def test_a_reading_in_one_step_of_sixteen_takes_a_sixteenth_of_itself_in_each():
    found = taken(step=2.0, places=0.02, state=0.64)
    assert found["places"] == pytest.approx((0.01, 1.0))
    assert found["state"] == pytest.approx((0.02, 1 / 16))


def test_what_is_read_in_a_step_does_not_follow_what_it_takes():
    assert taken(state=1e-6)["state"].coverage == taken(state=100.0)["state"].coverage


def test_of_a_state_that_nobody_has_read_nothing_is_said():
    assert set(taken(state=0.0)) == {"places"}


def test_the_usual_step_counts_and_not_the_one_that_was_compiled():
    budget = TimeBudget(0.03)
    for seconds in (600.0, 1.0, 1.1, 0.9, 1.0):
        budget.note(step_seconds=seconds, places_seconds=0.01 * seconds)
    assert budget.taken(state_seconds=0.0, every=16)["places"].cost == pytest.approx(0.01)

"""What each part of detection gets of a step's time, by what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.rules.step.budget import TimeBudget

SECONDS = st.floats(1e-6, 10.0)


def shared(share, step=1.0, places=0.0, state=0.0):
    budget = TimeBudget(share)
    budget.note(step_seconds=step, places_seconds=places)
    return budget.share_out(state)


def test_before_the_first_step_nothing_is_granted():
    assert TimeBudget(0.5).share_out(0.1) == {}


def test_what_looks_at_every_place_comes_first_and_the_state_gets_the_rest():
    grants = shared(0.03, places=0.01, state=0.04)
    assert grants["places"] == (0.01, 1.0)
    assert grants["state"] == pytest.approx((0.02, 0.5))


def test_what_leaves_nothing_leaves_the_state_its_least():
    assert shared(0.03, places=0.05, state=0.16)["state"] == pytest.approx((0.01, 1 / 16))


def test_what_takes_a_hundredth_of_a_step_is_done_in_any_case():
    assert shared(0.0, places=0.05, state=0.008)["state"] == pytest.approx((0.008, 1.0))


def test_a_state_whose_cost_is_not_known_is_granted_nothing():
    assert set(shared(0.03, state=0.0)) == {"places"}


def test_the_usual_step_counts_and_not_the_one_that_was_compiled():
    budget = TimeBudget(0.03)
    for seconds in (600.0, 1.0, 1.1, 0.9, 1.0):
        budget.note(step_seconds=seconds, places_seconds=0.01 * seconds)
    assert budget.share_out(0.0)["places"].cost == pytest.approx(0.01)


@given(st.floats(0, 1), SECONDS, SECONDS, SECONDS)
def test_no_more_than_the_budget_is_granted_but_the_least(share, step, places, state):
    grants = shared(share, step, places, state=state)
    least = places + max(0.01 * step, state / 16)
    assert sum(grant.cost for grant in grants.values()) * step <= max(share * step, least) * (1 + 1e-9)
    assert grants["state"].coverage >= min(1 / 16, 1)

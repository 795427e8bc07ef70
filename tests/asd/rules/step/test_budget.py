"""What each part of detection gets of a step's time, by what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.rules.step.budget import TimeBudget, turns_of

SECONDS = st.floats(1e-6, 10.0)


def shared(share, step=1.0, places=0.0, **prices):
    budget = TimeBudget(share)
    budget.note(step_seconds=step, places_seconds=places)
    return budget.share_out(prices)


def test_before_the_first_step_nothing_is_granted():
    assert TimeBudget(0.5).share_out({"state": 0.1}) == {}


def test_what_looks_at_every_place_comes_first_then_the_state_then_checks_of_results():
    grants = shared(0.03, places=0.01, state=0.004, checksum=0.32)
    assert grants["places"] == (0.01, 1.0)
    assert grants["state"] == pytest.approx((0.004, 1.0))
    assert grants["checksum"] == pytest.approx((0.016, 0.05))
    assert sum(grant.cost for grant in grants.values()) == pytest.approx(0.03)


def test_what_leaves_nothing_leaves_each_part_its_least():
    grants = shared(0.03, places=0.05, state=0.16, checksum=0.64)
    assert grants["state"] == pytest.approx((0.01, 1 / 16))
    assert grants["checksum"] == pytest.approx((0.01, 1 / 64))


def test_what_takes_half_a_hundredth_of_a_step_is_done_in_any_case():
    grants = shared(0.0, places=0.05, state=0.008, checksum=0.04)
    assert grants["state"] == pytest.approx((0.008, 1.0))
    assert grants["checksum"] == pytest.approx((0.005, 1 / 8))


def test_a_part_that_costs_nothing_or_is_not_known_is_granted_nothing():
    assert set(shared(0.03, state=0.0)) == {"places"}


def test_the_usual_step_counts_and_not_the_one_that_was_compiled():
    budget = TimeBudget(0.03)
    for seconds in (600.0, 1.0, 1.1, 0.9, 1.0):
        budget.note(step_seconds=seconds, places_seconds=0.01 * seconds)
    assert budget.share_out({})["places"].cost == pytest.approx(0.01)


@given(st.floats(0, 1), SECONDS, SECONDS, SECONDS, SECONDS)
def test_no_more_than_the_budget_is_granted_but_the_least_of_each(share, step, places, state, checksum):
    grants = shared(share, step, places, state=state, checksum=checksum)
    least = places + max(0.01 * step, state / 16) + max(0.005 * step, checksum / 64)
    assert sum(grant.cost for grant in grants.values()) * step <= max(share * step, least) * (1 + 1e-9)
    assert grants["state"].coverage >= 1 / 16
    least = min(1, max(1 / 64, 0.005 * step / checksum))
    assert grants["checksum"].coverage >= least
    assert grants["checksum"].coverage == pytest.approx(least) or grants["state"].coverage == pytest.approx(1)


@given(st.floats(1 / 64, 1), st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_turns_are_powers_of_two_that_cost_hardly_more_than_was_granted_and_stay_where_they_do(coverage, now):
    turns = turns_of(coverage, now)
    assert turns in (1, 2, 4, 8, 16, 32, 64)
    assert 1 / turns <= coverage * 1.25
    assert turns_of(coverage, turns) == turns

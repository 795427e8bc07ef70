"""Bounds on the weights and on what the optimizer remembers."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import Level
from asd.rules import StateBound

often = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = st.one_of(st.floats(1e-45, 3e38), st.sampled_from([0.0, math.inf, math.nan]))


def test_a_bound_without_values_names_nothing_and_is_healthy():
    bound = StateBound()
    assert bound.name == ""
    assert bound.update({}) == (Level.NORMAL, "", 0.0, float("inf"))


def test_the_value_that_is_most_times_its_limit_is_the_one_that_is_named():
    bound = StateBound()
    for _ in range(30):
        bound.update({"max_weight": 1.0})
    bound.update({"max_weight": 1.0, "min_v": 0.5})
    assert bound.name == "max_weight"
    bound.update({"min_v": 0.5, "max_weight": 1.0})
    assert bound.name == "max_weight"


@pytest.mark.parametrize(("updates", "factor"), [(19, 4), (20, 2)])
def test_the_bound_is_four_times_the_largest_in_the_first_20_steps_and_twice_after(updates, factor):
    bound = StateBound()
    for _ in range(updates):
        bound.update({"max_weight": 3.0, "max_moment": 0.5}, {"max_moment": 0.1})
    at_limit = {"max_weight": 3.0 * factor, "max_moment": 0.5 * factor}
    twin = StateBound()
    twin.restore(bound.state())
    assert twin.update(at_limit, {"max_moment": 0.1}).level is Level.NORMAL
    verdict = bound.update({**at_limit, "max_moment": 0.5 * factor + 1e-9}, {"max_moment": 0.1})
    assert (verdict.level, verdict.limit, bound.name) == (Level.ERROR, 0.5 * factor, "max_moment")
    assert f" {factor} times " in verdict.reason


def test_a_healthy_training_that_grows_by_nine_percent_a_step_is_no_alarm_when_each_16th_step_is_read():
    bound = StateBound()
    for step in range(16, 400, 16):
        assert bound.update({"max_weight": 0.1 * 1.09**step}, steps=16).level is Level.NORMAL


def test_what_no_growth_explains_is_an_alarm_when_each_16th_step_is_read():
    bound = StateBound()
    for _ in range(4):
        bound.update({"max_weight": 1.0}, steps=16)
    limit = 2 * 1.1**15
    assert bound.update({"max_weight": 0.999 * limit}, steps=16).level is Level.NORMAL
    verdict = bound.update({"max_weight": 1.001 * limit * limit}, steps=16)
    assert (verdict.level, verdict.limit) == (Level.ERROR, pytest.approx(0.999 * limit * limit))


def test_however_many_steps_nobody_looked_at_there_is_a_bound():
    bound = StateBound()
    bound.update({"max_weight": 1.0})
    assert bound.update({"max_weight": 1e30}, steps=100_000).level is Level.ERROR


@often
@given(st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=60), st.floats(0.5, 0.9999), st.floats(0.0, 0.99))
def test_no_gradient_whatever_its_size_makes_the_moments_of_an_adam_an_error(gradients, beta2, beta1):
    bound, m, v = StateBound(), 0.0, 0.0
    for g in gradients:
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        growth = {"max_m": (1 - beta1) * g, "max_v": (1 - beta2) * g * g}
        assert bound.update({"max_m": m, "max_v": v, "min_v": v}, growth).level is Level.NORMAL


def test_a_second_moment_may_grow_by_what_the_gradients_add_and_no_further():
    for value, level in ((1.0 + 64.0, Level.NORMAL), (1.1 + 64.0, Level.ERROR)):
        bound = StateBound()
        for _ in range(30):
            bound.update({"max_v": 1.0, "min_v": 0.0}, {"max_v": 0.0})
        assert bound.update({"max_v": value, "min_v": 0.0}, {"max_v": 64.0}).level is level


@pytest.mark.parametrize(("name", "factor"), [("max_weight", 2), ("max_m", 1000), ("max_v", 1_000_000)])
def test_moments_whose_gradients_are_not_known_may_grow_further(name, factor):
    for value, level in ((factor, Level.NORMAL), (1.01 * factor, Level.ERROR)):
        bound = StateBound()
        for _ in range(30):
            bound.update({name: 1.0, "min_v": 0.0})
        assert bound.update({name: value, "min_v": 0.0}).level is level


def test_a_negative_second_moment_and_anything_not_finite_are_errors_from_the_first_step_on():
    assert StateBound().update({"min_v": -1e-30}).reason == "state: min_v is negative"
    assert StateBound().update({"max_p": 1.0, "max_m": math.nan}).reason == "state: max_m not finite"
    assert StateBound().update({"max_p": math.inf}).level is Level.ERROR
    assert StateBound().update({"max_p": 3e38, "min_v": 0.0}).level is Level.NORMAL


def test_a_flagged_state_is_one_alarm_for_it_is_there_to_stay():
    bound = StateBound()
    for _ in range(30):
        bound.update({"max_weight": 1.0})
    found = [bound.update({"max_weight": value}).level.name for value in (5.0, 5.0, 9.0, 11.0, math.inf, math.inf)]
    assert found == ["ERROR", "NORMAL", "NORMAL", "NORMAL", "ERROR", "ERROR"]


@often
@given(st.lists(st.dictionaries(st.sampled_from(["max_p", "max_m", "min_v"]), SIZES), max_size=30), st.integers(0, 30))
def test_a_restored_bound_goes_on_as_if_it_had_never_stopped_and_holds_only_numbers(steps, stop):
    bound = StateBound()
    for values in steps[:stop]:
        bound.update(values)
    other = StateBound()
    other.restore(json.loads(json.dumps(bound.state(), allow_nan=False)))
    for values in steps[stop:]:
        assert repr(other.update(values)) == repr(bound.update(values))
    assert other.state() == bound.state()

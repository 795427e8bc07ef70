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


@pytest.mark.parametrize(("updates", "factor"), [(19, 4), (20, 2)])
@pytest.mark.parametrize(("name", "times", "kind"), [("max_moment", 1, "state"), ("max_update", 2, "update")])
def test_the_bound_is_four_times_the_largest_in_the_first_20_steps_and_twice_after(updates, factor, name, times, kind):
    bound, growth = StateBound(), {"max_weight": 0.1, name: 0.1}
    for _ in range(updates):
        bound.update({"max_weight": 3.0, name: 0.5}, growth)
    at_limit = {"max_weight": 3.0 * factor, name: 0.5 * times * factor}
    twin = StateBound()
    twin.restore(bound.state())
    assert twin.update(at_limit, growth).level is Level.NORMAL
    verdict = bound.update({**at_limit, name: 0.5 * times * factor + 1e-9}, growth)
    assert (verdict.level, verdict.limit) == (Level.ERROR, 0.5 * times * factor)
    assert verdict.reason.startswith(f"{kind}: {name} ")


@pytest.mark.parametrize(
    ("name", "growth", "steps", "most", "beyond"),
    [("max_v", {"max_v": 64.0}, 16, 65.0, Level.ERROR), ("max_m", {}, 1, 1e30, Level.NORMAL)],
)
def test_a_value_may_grow_by_what_was_added_or_by_anything_where_that_is_not_known(name, growth, steps, most, beyond):
    for value, level in ((most, Level.NORMAL), (1.01 * most, beyond), (math.inf, Level.ERROR)):
        bound = StateBound()
        for _ in range(40):
            bound.update({name: 1.0, "min_v": 0.0}, dict.fromkeys(growth, 0.0), steps=steps)
        assert bound.update({name: value, "min_v": 0.0}, growth).level is level


def test_what_was_long_ago_counts_less():
    bound = StateBound()
    for value, level in ((100.0, Level.NORMAL), *[(1.0, Level.NORMAL)] * 200, (20.0, Level.ERROR)):
        assert bound.update({"max_weight": value}, {"max_weight": 0.0}).level is level


def test_a_norm_that_falls_as_it_never_did_is_a_warning():
    for fall, level in ((0.99, Level.NORMAL), (0.92, Level.WARNING)):
        bound, norm = StateBound(), 1.0
        for _ in range(10):
            norm *= 0.995
            assert bound.update({"l2_weight": norm}, steps=16).level is Level.NORMAL
        verdict = bound.update({"l2_weight": fall * norm}, steps=16)
        assert (verdict.level, bound.update({"l2_weight": fall * norm}).level) == (level, Level.NORMAL)


@often
@given(st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=60), st.floats(0.5, 0.9999), st.floats(0.0, 0.99))
def test_no_gradient_whatever_its_size_makes_the_moments_of_an_adam_an_error(gradients, beta2, beta1):
    bound, m, v = StateBound(), 0.0, 0.0
    for g in gradients:
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        growth = {"max_m": (1 - beta1) * g, "max_v": (1 - beta2) * g * g}
        assert bound.update({"max_m": m, "max_v": v, "min_v": v}, growth).level is Level.NORMAL


def test_a_negative_second_moment_and_anything_not_finite_are_errors_from_the_first_step_on():
    assert StateBound().update({"min_v": -1e-30}).reason == "state: min_v is negative"
    assert StateBound().update({"max_p": 1.0, "max_m": math.nan}).reason == "state: max_m not finite"
    assert StateBound().update({"max_p": math.inf}).level is Level.ERROR
    assert StateBound().update({"max_p": 3e38, "min_v": 0.0}).level is Level.NORMAL


def test_a_flagged_state_is_one_alarm_for_it_is_there_to_stay():
    bound, growth = StateBound(), {"max_weight": 0.0}
    for _ in range(30):
        bound.update({"max_weight": 1.0}, growth)
    values = (5.0, 5.0, 9.0, 11.0, math.inf, math.inf)
    found = [bound.update({"max_weight": value}, growth).level.name for value in values]
    assert found == ["ERROR", "NORMAL", "NORMAL", "NORMAL", "ERROR", "ERROR"]


@often
@given(
    st.lists(st.dictionaries(st.sampled_from(["max_p", "l2_p", "min_v"]), SIZES, min_size=1), max_size=30),
    st.integers(0, 30),
)
def test_a_restored_bound_goes_on_as_if_it_had_never_stopped_and_holds_only_numbers(steps, stop):
    bound = StateBound()
    for values in steps[:stop]:
        bound.update(values)
    other = StateBound()
    other.restore(json.loads(json.dumps(bound.state(), allow_nan=False)))
    for values in steps[stop:]:
        assert repr(other.update(values)) == repr(bound.update(values))
    assert other.state() == bound.state()

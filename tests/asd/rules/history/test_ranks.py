"""Ranks against one another, bounds on the state, and what an alarm looks like across ranks."""

import json
import math
import random

import pytest
from asd.rules.readings.features import Features
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import ConfigError, Level, StateError
from asd.rules.history import Ranks, StateBound

often = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = st.one_of(st.floats(1e-45, 3e38), st.sampled_from([0.0, math.inf, math.nan]))


def features(size):
    return Features(size, 5 * size, size / 4)


def healthy(seed, size, length=60):
    generator = random.Random(seed)
    for _ in range(length):
        level = generator.gauss(0, 0.3)
        yield [features(2.0 ** (level + generator.gauss(0, 0.2))) for _ in range(size)]


def taught(size, seed=1):
    ranks = Ranks("B", size)
    for step in healthy(seed, size):
        assert {verdict.level for verdict in ranks.update(step)} == {Level.NORMAL}
    return ranks


def levels(verdicts):
    return [verdict.level.name for verdict in verdicts]


def test_all_ranks_that_jump_together_are_no_alarm():
    assert set(levels(taught(4).update([features(2.0**9)] * 4))) == {"NORMAL"}


def test_of_two_ranks_both_are_flagged_and_none_is_named():
    verdicts = taught(2).update([features(1.0), features(2.0**8)])
    assert levels(verdicts) == ["ERROR", "ERROR"]
    assert verdicts[0].reason.endswith("of two ranks either may be at fault")


def test_a_single_rank_is_never_flagged():
    ranks = Ranks("B", 1)
    assert {verdict.level for step in [1.0] * 30 + [1e30] for verdict in ranks.update([features(step)])} == {
        Level.NORMAL
    }


@often
@given(st.lists(st.lists(SIZES, min_size=3, max_size=3), max_size=40), st.integers(0, 40))
def test_restored_ranks_go_on_as_if_they_had_never_stopped_and_hold_only_numbers(steps, stop):
    ranks = Ranks("W", 3)
    for step in steps[:stop]:
        ranks.update([features(size) for size in step])
    other = Ranks("W", 3)
    other.restore(json.loads(json.dumps(ranks.state(), allow_nan=False)))
    for step in steps[stop:]:
        values = [features(size) for size in step]
        assert repr(other.update(values)) == repr(ranks.update(values))
    assert other.state() == ranks.state()


@pytest.mark.parametrize("kind", ["W", "B"])
def test_a_rank_whose_expert_got_no_tokens_is_not_accused_and_neither_are_those_whose_did(kind):
    ranks, generator = Ranks(kind, 4), random.Random(3)
    for step in range(300):
        values = [features(generator.uniform(0.9, 1.1)) for _ in range(4)]
        if step > 150:
            for rank in generator.sample(range(4), generator.randrange(4)):
                values[rank] = features(0.0)
        assert levels(ranks.update(values)) == ["NORMAL"] * 4, step
    wild = [features(1.0), features(100.0), features(1.0), features(1.0)]
    assert levels(ranks.update(wild)) == ["NORMAL", "ERROR", "NORMAL", "NORMAL"]


def test_an_expert_whose_first_tokens_come_on_one_rank_is_no_anomaly():
    ranks, generator = Ranks("Y", 3), random.Random(7)
    bias = Features(0.14, 13.0, 0.08)

    def alive():
        return Features(*(size * generator.uniform(0.9, 1.1) for size in (2.0, 60.0, 0.2)))

    for _ in range(20):
        assert levels(ranks.update([bias] * 3)) == ["NORMAL"] * 3
    for _ in range(10):
        assert levels(ranks.update([bias, alive(), bias])) == ["NORMAL"] * 3
    other, state = Ranks("Y", 3), ranks.state()
    other.restore(json.loads(json.dumps(state)))
    for wrong in (None, 3, [], [3, 3, 3]):
        with pytest.raises(StateError):
            ranks.restore({**state, "idle": wrong})
    assert other.state() == ranks.state()
    for _ in range(30):  # all have tokens in every step
        assert levels(ranks.update([alive() for _ in range(3)])) == ["NORMAL"] * 3
    assert levels(ranks.update([alive(), Features(40.0, 900.0, 4.0), alive()])) == ["NORMAL", "ERROR", "NORMAL"]


def test_states_and_values_of_another_number_of_ranks_are_refused():
    with pytest.raises(StateError):
        Ranks("B", 3).restore(taught(4).state())
    with pytest.raises(ConfigError, match="values has the value 2"):
        Ranks("B", 3).update([features(1.0)] * 2)
    with pytest.raises(ConfigError, match="size has the value 0"):
        Ranks("B", 0)


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
    assert verdict.reason == f"state: max_moment more than {factor} times its largest so far"


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
    assert StateBound().update({}).level is Level.NORMAL


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

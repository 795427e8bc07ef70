"""Ranks against one another, and what an alarm looks like across ranks."""

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import ConfigError, Level, StateError
from asd.rules import Ranks

often = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = st.one_of(st.floats(1e-45, 3e38), st.sampled_from([0.0, math.inf, math.nan]))


def healthy(seed, size, length=60):
    generator = random.Random(seed)
    for _ in range(length):
        level = generator.gauss(0, 0.3)
        yield [2.0 ** (level + generator.gauss(0, 0.2)) for _ in range(size)]


def taught(size, seed=1):
    ranks = Ranks("B", size)
    for step in healthy(seed, size):
        assert {verdict.level for verdict in ranks.update(step)} == {Level.NORMAL}
    return ranks


def levels(verdicts):
    return [verdict.level.name for verdict in verdicts]


def test_of_two_ranks_both_are_flagged_and_none_is_named():
    verdicts = taught(2).update([1.0, 2.0**8])
    assert levels(verdicts) == ["ERROR", "ERROR"]
    assert verdicts[0].reason.endswith("of two ranks either may be at fault")


def test_a_single_rank_is_never_flagged():
    ranks = Ranks("B", 1)
    assert {verdict.level for step in [1.0] * 30 + [1e30] for verdict in ranks.update([step])} == {Level.NORMAL}


@often
@given(st.lists(st.lists(SIZES, min_size=3, max_size=3), max_size=40), st.integers(0, 40))
def test_restored_ranks_go_on_as_if_they_had_never_stopped_and_hold_only_numbers(steps, stop):
    ranks = Ranks("W", 3)
    for step in steps[:stop]:
        ranks.update(step)
    other = Ranks("W", 3)
    other.restore(json.loads(json.dumps(ranks.state(), allow_nan=False)))
    for step in steps[stop:]:
        assert repr(other.update(step)) == repr(ranks.update(step))
    assert other.state() == ranks.state()


@pytest.mark.parametrize("kind", ["W", "B"])
def test_a_rank_whose_expert_got_no_tokens_is_not_accused_and_neither_are_those_whose_did(kind):
    ranks, generator = Ranks(kind, 4), random.Random(3)
    for step in range(300):
        values = [generator.uniform(0.9, 1.1) for _ in range(4)]
        if step > 150:
            for rank in generator.sample(range(4), generator.randrange(4)):
                values[rank] = 0.0
        assert levels(ranks.update(values)) == ["NORMAL"] * 4, step
    assert levels(ranks.update([1.0, 100.0, 1.0, 1.0])) == ["NORMAL", "ERROR", "NORMAL", "NORMAL"]


def test_states_and_values_of_another_number_of_ranks_are_refused():
    with pytest.raises(StateError):
        Ranks("B", 3).restore(taught(4).state())
    with pytest.raises(ConfigError, match="values has the value 2"):
        Ranks("B", 3).update([1.0] * 2)

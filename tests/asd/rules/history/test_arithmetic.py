"""The numbers of tiers against the same arithmetic, written down as plainly as the documentation has it."""

from random import Random

import pytest
from asd.rules.history.unchanged_output import UnchangedOutput

from asd.errors import StateError
from asd.rules.history import StateBound
from asd.rules.saved import saved_number
from asd.rules.trace import Trace
from asd.verdict import Level


def test_a_trace_learns_as_its_documentation_says():
    trace, random = Trace(), Random(1)
    mu = env = low = rise = 0.0
    dev = 0.2
    for n in range(300):
        x = random.gauss(0.0, 0.5) + (9.0 if n % 50 == 49 else 0.0)
        trace.learn(x)
        if n == 0:
            mu = env = low = x
        else:
            dev += max(0.02, 1 / (n + 1)) * (min(abs(x - mu), 4 * dev + 0.05) - dev)
            mu += max(0.05, 1 / (n + 1)) * ((min(x, mu + 4) if n > 20 else x) - mu)
            rise = max(x - env, 0.9 * rise)
            env, low = max(x, env - 0.01), min(x, low + 0.01)
        expected = {"mu": mu, "dev": dev, "env": env, "rise": rise, "low": low, "n": n + 1}
        assert trace.state() == pytest.approx(expected)
        assert trace.deviations(2.0) == pytest.approx((2.0 - mu) / max(dev, 0.05))


def test_an_idle_output_ends_once_it_changes():
    idle = UnchangedOutput()
    seen = []
    for x in ([1.0, None], [1.0, None], [1.0, 2.0], [1.0 + 2.0**-12, 2.0], [1.0 + 1.9 * 2.0**-12, 2.0]):
        idle.update(x)
        seen.append((idle.now, idle.ended))
    assert seen == [(False, False), (True, False), (False, True), (False, False), (True, False)]


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


def test_of_many_values_nothing_is_left_of_growth_by_a_power():
    trace = Trace()
    for _ in range(600):
        trace.learn(1.0)
    assert trace.ceiling == 1.0


def test_a_deviation_below_the_floor_counts_as_the_floor():
    trace = Trace()
    trace.dev = 0.01
    assert trace.deviations(1.0) == 20.0


@pytest.mark.parametrize("wrong", [True, "x", None, float("nan")])
def test_only_a_finite_number_is_a_number(wrong):
    with pytest.raises(StateError, match="key has the value"):
        saved_number("a test", "key", wrong)

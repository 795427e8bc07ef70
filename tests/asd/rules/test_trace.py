"""What a trace learns, against the same written down as plainly as the documentation has it."""

from random import Random

import pytest

from asd.errors import StateError
from asd.rules.base import saved_number
from asd.rules.trace import Trace


def test_a_trace_learns_as_its_documentation_says():
    trace, random = Trace(), Random(1)
    env = low = rise = 0.0
    for n in range(300):
        x = random.gauss(0.0, 0.5) + (9.0 if n % 50 == 49 else 0.0)
        trace.learn(x)
        if n == 0:
            env = low = x
        else:
            rise = max(x - env, 0.9 * rise)
            env, low = max(x, env - 0.01), min(x, low + 0.01)
        expected = {"env": env, "rise": rise, "low": low, "n": n + 1}
        assert trace.state() == pytest.approx(expected)


def test_of_many_values_nothing_is_left_of_growth_by_a_power():
    trace = Trace()
    for _ in range(600):
        trace.learn(1.0)
    assert trace.ceiling == 1.0


@pytest.mark.parametrize("wrong", [True, "x", None, float("nan")])
def test_only_a_finite_number_is_a_number(wrong):
    with pytest.raises(StateError, match="key has the value"):
        saved_number("a test", "key", wrong)

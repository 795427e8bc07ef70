"""What the rules take for granted: their published numbers, valid arguments, roots of limits."""

from math import inf, nextafter

import pytest

from asd.rules import Adaptive, SilentCheckV3, Threshold
from asd.rules.base import largest_root
from asd.rules.checksum import ScoreRule


@pytest.mark.parametrize("limit", [2.0, 3.0, 10.0, 0.7, 1e-3, 1e-289, 1e-200, 1e300, 1e12, 12345.678, 5e7, 0.1])
def test_the_largest_root_is_the_last_float_whose_square_is_not_above_the_limit(limit):
    root = largest_root(limit)
    assert root * root <= limit < nextafter(root, inf) ** 2
    assert (largest_root(inf), largest_root(0.0)) == (inf, 1.5e-162)


@pytest.mark.parametrize("rule", [Threshold, Adaptive, SilentCheckV3, lambda: ScoreRule("does not fit")])
def test_the_value_of_a_verdict_is_a_float_also_where_an_integer_was_judged(rule):
    assert type(rule().update(1).value) is float

import math

import pytest

from asd.rules import Threshold
from tests.support.rules import vendor_codes

NAN = math.nan
INF = math.inf


def test_a_small_move_of_a_nearly_constant_site_is_no_jump_and_a_large_one_is():
    for values, last, code in (([1.0, 1.0000001], 1.02, 0), ([1.0, 1.2], 9000, 2)):
        rule = Threshold()
        assert vendor_codes(rule, values * 50) == [0] * 100
        assert vendor_codes(rule, [last]) == [code]


def test_the_absolute_thresholds_hold_from_the_first_value_on():
    assert vendor_codes(Threshold(), [10000, 10000.1, 1000000, 1000001, INF, -INF]) == [0, 2, 2, 1, 1, 1]


def test_the_jump_is_judged_only_after_min_steps_accepted_values():
    rule = Threshold((1000, 100), (50, 5), 4)
    assert vendor_codes(rule, [1, 2, NAN, 500, 3, 60]) == [0, 0, 1, 2, 0, 0]
    assert vendor_codes(rule, [60 + 5 * 59, 60 + 39.9, 1]) == [2, 0, 0]


def test_a_fall_and_the_first_real_value_after_zeros_are_no_jumps():
    for values in ([50, 50.1, 0.0, 1e-45], [0.0, 0.0, 0.0, 1e-6, 3e-6]):
        assert not any(vendor_codes(Threshold(sigma=(4, 3), min_steps=2), values))


@pytest.mark.parametrize("level", [0.0, 1e-45, 1e-30, 0.007812, 1.0, 9000.0])
def test_a_constant_site_never_cries_wolf(level):
    rule = Threshold(sigma=(4, 3), min_steps=1)
    steps = [level * (1 + step % 3 / 256) for step in range(300)]
    assert not any(vendor_codes(rule, steps))


def test_a_jump_is_told_in_widths_of_the_range_once_jumps_are_judged():
    rule = Threshold(min_steps=3)
    for value in (1.0, 2.0):
        rule.update(value)
    assert math.isnan(rule.jump(7.0))
    rule.update(3.0)
    assert (rule.jump(7.0), rule.jump(3.0), rule.jump(1.0)) == (2.0, 0.0, -1.0)

import math

import pytest

from asd.errors import StateError
from asd.rules import Threshold
from asd.verdict import Level

NAN = math.nan
INF = math.inf


VENDOR_CODES = (0, 2, 1)
"""What the vendor kernels return for a level."""


def vendor_codes(rule, values):
    return [VENDOR_CODES[rule.update(value).level] for value in values]


def printed(numbers):
    return [f"{number:.6f}" for number in numbers]


def test_vendor_trace_a_keeps_a_nan_as_the_last_value_but_not_in_the_range():
    rule = Threshold(vendor_exact=True)
    values = (0.130423, 0.115, 0.0989, 0.089474, 0.105156, 0.100089, NAN, NAN, 0.1)
    codes, before = [], []
    for value in values:
        before.append(rule.state())
        codes.append(VENDOR_CODES[rule.update(value).level])
    assert codes == [0, 0, 0, 0, 0, 0, 1, 1, 0]
    last = ["0.000000", "0.130423", "0.115000", "0.098900", "0.089474", "0.105156", "0.100089", "nan", "nan"]
    assert printed(state["pre"] for state in before) == last
    smallest = ["0.000000", "0.130423", "0.115000", "0.098900", *["0.089474"] * 5]
    assert printed(state["min"] for state in before) == smallest
    assert printed(state["max"] for state in before) == ["0.000000", *["0.130423"] * 8]
    assert rule.state() == {"pre": 0.1, "min": 0.089474, "max": 0.130423, "count": 9}


def test_vendor_trace_b_has_jumps_absolute_anomalies_and_a_range_that_grows():
    rule = Threshold((1000, 100), (50, 5), 3, vendor_exact=True)
    verdicts = [rule.update(value) for value in (1, 2, 3, 2.5, 10, 60, 150, 5000, NAN, 1)]
    assert [VENDOR_CODES[verdict.level] for verdict in verdicts] == [0, 0, 0, 0, 0, 2, 2, 1, 1, 0]
    assert [verdict.reason for verdict in verdicts[5:]] == [
        "jump above the second jump threshold 5",
        "value above the second absolute threshold 100",
        "value above the first absolute threshold 1000",
        "not finite",
        "",
    ]
    assert rule.state() == {"pre": 1, "min": 1, "max": 5000, "count": 10}


def test_vendor_trace_c_flags_a_large_jump_after_the_warm_up():
    rule = Threshold(vendor_exact=True)
    assert vendor_codes(rule, [1.0, 1.2] * 50) == [0] * 100
    assert rule.state() == {"pre": 1.2, "min": 1.0, "max": 1.2, "count": 100}
    assert vendor_codes(rule, [9000]) == [2]


def test_vendor_trace_c_flags_a_harmless_move_of_a_nearly_constant_site_and_the_mended_rule_does_not():
    for vendor_exact, code in ((True, 1), (False, 0)):
        rule = Threshold(vendor_exact=vendor_exact)
        assert vendor_codes(rule, [1.0, 1.0000001] * 50) == [0] * 100
        assert vendor_codes(rule, [1.02]) == [code]


def test_a_vendor_rule_that_starts_with_nan_never_judges_a_jump_again():
    rule = Threshold((1000, 100), (50, 5), 1, vendor_exact=True)
    assert vendor_codes(rule, (NAN, 1, 90, 1, 90)) == [1, 0, 0, 0, 0]
    assert math.isnan(rule.state()["min"])
    assert rule.limit() == 1000


def test_a_vendor_rule_that_aborts_does_not_learn_first_level_values():
    rule = Threshold((1000, 100), (50, 5), 3, vendor_exact=True, learn_errors=False)
    assert vendor_codes(rule, (1, 2, 3, NAN, 5000, 200)) == [0, 0, 0, 1, 1, 1]
    assert rule.state() == {"pre": 3, "min": 1, "max": 3, "count": 3}
    assert vendor_codes(rule, [50, 120]) == [2, 2]
    assert rule.state() == {"pre": 120, "min": 1, "max": 120, "count": 5}


def test_the_absolute_thresholds_hold_from_the_first_value_on():
    assert vendor_codes(Threshold(), [10000, 10000.1, 1000000, 1000001, INF, -INF]) == [0, 2, 2, 1, 1, 1]


def test_the_jump_is_judged_only_after_min_steps_accepted_values():
    rule = Threshold((1000, 100), (50, 5), 4)
    assert vendor_codes(rule, [1, 2, NAN, 500, 3, 60]) == [0, 0, 1, 2, 0, 0]
    assert vendor_codes(rule, [60 + 5 * 59, 60 + 39.9, 1]) == [2, 0, 0]


def test_a_fall_is_no_jump():
    rule = Threshold((1000, 100), (50, 5), 2)
    assert vendor_codes(rule, [50, 50.1, 0.0, 1e-45]) == [0, 0, 0, 0]


def test_a_flagged_value_of_either_level_leaves_the_state_unchanged():
    rule = Threshold((1000, 100), (50, 5), 3)
    vendor_codes(rule, [1, 2, 3, 2.5])
    state = rule.state()
    assert vendor_codes(rule, [13, 103, 101, 2000, NAN, INF]) == [2, 1, 2, 1, 1, 1]
    assert rule.state() == state


def test_the_verdict_carries_the_value_and_the_limit_before_the_update():
    rule = Threshold((1000, 100), (50, 5), 2)
    vendor_codes(rule, [1, 2])
    assert rule.limit() == 2 + 50 * 1
    assert rule.update(60.0) == (Level.ERROR, "jump above the first jump threshold 50", 60.0, 52.0)


@pytest.mark.parametrize("level", [0.0, 1e-45, 1e-30, 0.007812, 1.0, 9000.0])
def test_a_constant_site_never_cries_wolf(level):
    rule = Threshold(sigma=(4, 3), min_steps=1)
    steps = [level * (1 + step % 3 / 256) for step in range(300)]
    assert not any(vendor_codes(rule, steps))


def test_a_site_that_had_only_zeros_does_not_flag_its_first_real_value():
    rule = Threshold(sigma=(4, 3), min_steps=2)
    assert vendor_codes(rule, [0.0, 0.0, 0.0, 1e-6, 3e-6]) == [0, 0, 0, 0, 0]


def test_a_state_of_the_vendor_rule_with_nan_is_refused_by_the_mended_rule():
    vendor = Threshold(vendor_exact=True)
    vendor.update(NAN)
    again = Threshold(vendor_exact=True)
    again.restore(vendor.state())
    assert math.isnan(again.state()["pre"])
    with pytest.raises(StateError, match="pre has the value nan"):
        Threshold().restore(vendor.state())


def test_a_jump_is_told_in_widths_of_the_range_once_jumps_are_judged():
    rule = Threshold(min_steps=3)
    for value in (1.0, 2.0):
        rule.update(value)
    assert math.isnan(rule.jump(7.0))
    rule.update(3.0)
    assert (rule.jump(7.0), rule.jump(3.0), rule.jump(1.0)) == (2.0, 0.0, -1.0)

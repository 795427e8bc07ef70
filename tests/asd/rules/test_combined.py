import math

import pytest

from asd.rules import Combined
from asd.verdict import Level

NAN = math.nan
INF = math.inf


def strikes(rule, values):
    return [rule.update(value).level is Level.ERROR for value in values]


def warmed_up(count=12):
    rule = Combined()
    assert not any(strikes(rule, [1e-3] * count))
    return rule


def test_the_trace_measured_on_the_vendor_library_is_reproduced():
    rule = Combined()
    assert (rule.upper_thresh1, rule.upper_thresh2) == (1_000_000, 100)
    strikes(rule, [1e-3] * 10)
    assert f"{rule.state()['avg']:g}" == "9.56179e-05"
    rows = []
    for value in (1e-3, 1e-3, 0.05, 2, 2000, 1e-3, INF, 1e-3):
        struck = rule.update(value).level is Level.ERROR
        state = rule.state()
        rows.append((struck, f"{state['avg']:g}", state["none_zero_count"], state["count"]))
    assert rows[1:] == [
        (False, "0.000113615", 12, 12),
        (False, "0.000612479", 13, 13),
        (False, "0.000612479", 13, 14),
        (False, "0.000612479", 13, 15),
        (False, "0.000616354", 14, 16),
        (True, "0.000616354", 14, 17),
        (False, "0.000620191", 15, 18),
    ]


def test_the_limits_exist_from_the_eleventh_value_on_and_are_the_measured_ones():
    assert warmed_up(9).limit() == INF
    assert warmed_up(10).limit() == pytest.approx(1000.001)
    rule = warmed_up()
    rule.update(0.05)
    assert rule.limit() == pytest.approx(5001 + 0.05, rel=1e-4)


def test_the_limit_is_exact_to_the_last_bit():
    rule = Combined(3)
    strikes(rule, [1.0] * 11)
    limit, state = rule.limit(), rule.state()
    assert rule.update(limit).level is Level.NORMAL
    rule.restore(state)
    assert rule.update(math.nextafter(limit, INF)).level is Level.ERROR


def test_a_mean_too_small_for_a_float_gives_no_limit():
    rule = Combined()
    assert strikes(rule, [5e-324] * 10) == [False] * 10
    assert (rule.state()["avg"], rule.limit()) == (0.0, INF)


def test_after_a_nan_the_next_spike_passes_and_after_an_infinity_it_strikes():
    assert strikes(warmed_up(), [NAN, 1e9, 1e9]) == [True, False, False]
    rule = warmed_up()
    assert strikes(rule, [INF]) == [True]
    assert rule.limit() == pytest.approx(1000)
    assert strikes(rule, [1e9]) == [True]


def test_a_spike_among_the_first_ten_values_is_averaged_and_blunts_the_rule():
    rule = warmed_up(9)
    assert strikes(rule, [1e9]) == [False]
    assert f"{rule.state()['avg']:g}" == "1e+07"
    assert rule.state()["none_zero_count"] == 10
    assert strikes(rule, [1e-3, 1e30]) == [False, True]


def test_zeros_count_only_as_values_seen():
    rule = Combined()
    assert strikes(rule, [0.0] * 3 + [1e-3] * 10 + [0.0, 1e9]) == [False] * 14 + [True]
    assert (rule.state()["count"], rule.state()["none_zero_count"]) == (15, 10)


def test_a_value_that_is_passed_over_is_normal_and_not_averaged():
    rule = warmed_up()
    before = rule.state()
    assert rule.update(2.0) == (Level.NORMAL, "", 2.0, pytest.approx(1000.001))
    assert rule.state() == {**before, "pre_value": 2.0, "count": 13}


def test_after_a_huge_value_the_values_that_strike_have_a_gap_around_it():
    rule = warmed_up()
    rule.update(1e9)
    assert rule.limit() == pytest.approx(1e9 + 1000)
    state = rule.state()
    for value, struck in ((999, False), (1001, True), (1e9 - 1001, True), (1e9 - 999, False), (1e9 + 1001, True)):
        rule.restore(state)
        assert strikes(rule, [value]) == [struck]

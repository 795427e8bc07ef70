import math

import pytest

from asd.rules import SilentCheckV3
from tests.support.rules import vendor_codes

NAN = math.nan
INF = math.inf

# value, vendor code, mean in the vendor's log line, corrected mean, mean afterwards
TRACE = [
    (190, 0, "1.900000e+02", 190, "1.900000e+00"),
    (185, 0, "1.900000e+00", 190, "3.731000e+00"),
    (183, 0, "3.731000e+00", 187.487, "5.523690e+00"),
    (188.5, 0, "5.523690e+00", 185.977, "7.353453e+00"),
    (201.6393, 0, "7.353453e+00", 186.617, "9.296312e+00"),
    (2e6, 2, "9.296312e+00", 189.682, "2.000920e+04"),
    (2e11, 2, "2.000920e+04", 341922, "2.000020e+09"),
    (NAN, 1, "2.000020e+09", 2.94403e10, "nan"),
    (200, 0, "nan", NAN, "nan"),
    (1e30, 0, "nan", NAN, "nan"),
    (INF, 1, "nan", NAN, "nan"),
]


def test_the_published_trace_is_reproduced_poisoned_mean_included():
    rule = SilentCheckV3()
    for step, (value, code, mean_before, base, mean_after) in enumerate(TRACE):
        # The vendor's caller puts the first value where the mean is printed.
        assert f"{rule.state()['avg'] if step else value:e}" == mean_before
        if step == 0 or math.isnan(base):
            assert rule.limit() == INF
        else:
            assert rule.limit() == pytest.approx(base * 1e6, rel=1e-5)
        assert vendor_codes(rule, [value]) == [code]
        assert f"{rule.state()['avg']:e}" == mean_after
    assert rule.state()["count"] == len(TRACE)


def test_a_rule_that_aborts_learns_no_first_level_value():
    rule = SilentCheckV3(learn_errors=False)
    assert vendor_codes(rule, [NAN, 100, 110, 1e9, INF, NAN]) == [1, 0, 0, 1, 1, 1]
    assert rule.state() == {"avg": pytest.approx(100 * 0.01 * 0.99 + 1.1), "count": 2}
    assert vendor_codes(rule, [1e7, 1e9]) == [2, 0]


def test_the_reasons_name_the_multiple_of_the_mean():
    rule = SilentCheckV3((1000, 10))
    reasons = [rule.update(value).reason for value in (1, 11, 1e6, NAN)]
    assert reasons == ["", "value above 10 times its mean", "value above 1000 times its mean", "not finite"]


def test_a_site_of_zeros_flags_its_first_real_value_as_published():
    assert vendor_codes(SilentCheckV3(), [0, 0, 1e-30]) == [0, 0, 1]


def test_a_poisoned_mean_is_taken_over_as_published():
    poisoned = SilentCheckV3()
    poisoned.restore({"avg": NAN, "count": 3})
    assert poisoned.limit() == INF


@pytest.mark.parametrize(
    ("first", "ratios"), [(2.0, {6.0: pytest.approx(3.0), 0.5: pytest.approx(0.25)}), (0.0, {0.0: 0.0, 1e-30: INF})]
)
def test_the_ratio_is_the_multiple_of_the_mean_and_infinite_above_zero(first, ratios):
    rule = SilentCheckV3()
    assert rule.ratio(5.0) == 0.0  # there is no mean yet
    rule.update(first)
    assert {value: rule.ratio(value) for value in ratios} == ratios

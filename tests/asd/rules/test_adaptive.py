import math
import random

import pytest

from asd.rules import Adaptive, Threshold
from asd.verdict import Level

OWN_KEYS = ("mu", "dev", "env", "low", "learned")


def levels(rule, values):
    return [rule.update(value).level for value in values]


def healthy(count, seed=0, noise=0.2):
    source = random.Random(seed)
    return [1e-4 * 2 ** source.gauss(0, noise) for _ in range(count)]


def trained(count=100):
    rule = Adaptive()
    assert set(levels(rule, healthy(count))) == {Level.NORMAL}
    return rule


def own_state(rule):
    return [rule.state()[key] for key in OWN_KEYS]


def test_it_sees_a_gradient_that_grew_tenfold_where_the_absolute_rule_sees_nothing():
    rule = trained()
    assert rule.update(1e-2).level is Level.ERROR
    assert set(levels(Threshold(), [*healthy(100), 1e-2])) == {Level.NORMAL}


def test_a_gradient_that_nearly_vanishes_is_a_warning():
    verdict = trained().update(1e-6)
    assert verdict.level is Level.WARNING
    assert verdict.reason == "value less than 1/2.39 of the recent smallest"


def test_the_reason_names_the_test_with_the_lower_limit():
    assert trained().update(1.0).reason == "value more than 12.2 deviations above the mean"
    wide = Adaptive(deviations=1000)
    levels(wide, healthy(100))
    assert wide.update(1.0).reason == "value more than 5.66 times the recent largest"
    assert Adaptive().update(2e6).reason == "value above the first absolute threshold 1000000"


def test_its_numbers_follow_the_formulas():
    rule = Adaptive()
    values = [1.0, 2.0, 0.5]
    levels(rule, values)
    mu, dev, env, low = 0.0, 0.2, 0.0, 0.0
    for n, x in ((1, 1.0), (2, -1.0)):
        dev, mu = dev + (min(abs(x - mu), 4 * dev + 0.05) - dev) / (n + 1), mu + (x - mu) / (n + 1)
        env, low = max(x, env - 0.01), min(x, low + 0.01)
    assert own_state(rule) == pytest.approx([mu, dev, env, low, 3])


def test_only_the_published_rule_judges_the_first_five_values():
    rule = Adaptive()
    assert levels(rule, [1e-6, 1e3, 1e-6, 1e3, 20000.0, 1e-6]) == [*[Level.NORMAL] * 4, Level.WARNING, Level.NORMAL]
    assert rule.state()["learned"] == 5
    assert Adaptive().limit() == 1000000


def test_the_envelope_is_half_as_wide_again_in_the_warm_up():
    rule = Adaptive(deviations=1000)
    limits = []
    for _ in range(30):
        rule.update(1.0)
        limits.append(math.log2(rule.limit()))
    assert limits[:4] == [math.log2(1e6)] * 4
    assert limits[4:19] == pytest.approx([3.75] * 15)
    assert limits[19:] == pytest.approx([2.5] * 11)


@pytest.mark.parametrize("level", [0.0, 1e-45, 0.007812, 1.0, 9000.0, 1e38])
def test_a_constant_site_never_cries_wolf(level):
    rule = Adaptive(upper=(1e40, 1e39))
    assert set(levels(rule, [level * (1 + step % 3 / 256) for step in range(300)])) == {Level.NORMAL}


@pytest.mark.parametrize("trend", [-4.0, 0.0, 4.0])
@pytest.mark.parametrize("noise", [0.05, 0.2, 0.4])
def test_healthy_noise_and_a_quick_change_of_level_at_the_start_raise_no_error(noise, trend):
    source = random.Random(5)
    for _ in range(50):
        rule = Adaptive()
        for step in range(120):
            assert rule.update(2 ** (trend * min(step, 20) / 20 + source.gauss(0, noise))).level is not Level.ERROR


def test_the_extremes_of_float_neither_overflow_nor_fail():
    for value in (5e-324, 1e-45, 3.4e38, 8e307):
        rule = Adaptive(upper=(1.79e308, 1.78e308))
        levels(rule, [value] * 30)
        assert rule.state()["learned"] == 30
        assert math.isfinite(rule.limit())

"""The rule that learns each site's level, against a plain computation of its formulas."""

import json
import random
from math import inf, isfinite, log2, nan

import pytest

from asd import ConfigError, Level, StateError
from asd.rules import Adaptive, Threshold
from asd.rules.kinds import KINDS, kind_of
from asd.rules.margins import Margin

TINY = 2.0**-10
every_kind = pytest.mark.parametrize("kind", KINDS)


def stream(seed, length, spread=0.5):
    generator = random.Random(seed)
    return [2.0 ** generator.gauss(-10, spread) for _ in range(length)]


def taught(kind="W", steps=60, *, size=TINY, spread=2.0**-6, margin=None):
    rule = Adaptive(kind=kind, margin=margin)
    for step in range(steps):
        assert rule.update(size * 2.0 ** (spread * (step % 3))).level is Level.NORMAL
    return rule


def ceiling(rule):
    """The logarithm of how far growth takes the next value."""
    trace = rule.state()["trace"]
    return trace["env"] + max(trace["rise"], 8 * log2(1 + 1 / trace["n"]))


def levels(rule, *sizes):
    return [rule.update(size).level.name for size in sizes]


def plain(sizes):
    """Levels and trace by the formulas as they are written down, before any margin is fitted."""
    env = rise = None
    found, n, high = [], 0, 0
    for size in sizes:
        x, level = log2(size), Level.NORMAL
        if n >= 3:
            most = env + max(rise, 8 * log2(1 + 1 / n))
            high = high + 1 if x > most + 4 else 0
            if high:
                level = Level.ERROR if high >= 3 or x > most + 14 else Level.WARNING
        found.append(level)
        if n == 0:
            env, rise, n = x, 0.0, 1
        elif level is Level.NORMAL:
            rise, env, n = max(x - env, 0.9 * rise), max(x, env - 0.01), n + 1
    return found, {"env": env, "rise": rise}


@every_kind
@pytest.mark.parametrize("bits", [3, 6, 20])
def test_levels_and_state_are_those_of_the_written_formulas(kind, bits):
    sizes = stream(3, 18, spread=0.15)
    sizes[9] *= 2.0**bits
    sizes[14:] = [size * 2.0**bits for size in sizes[14:]]
    rule = Adaptive(kind=kind)
    expected, trace = plain(sizes)
    assert [rule.update(size).level for size in sizes] == expected
    assert (Level.ERROR in expected) is (bits > 3)
    found = rule.state()["trace"]
    assert {name: found[name] for name in trace} == pytest.approx(trace, rel=1e-12)
    assert rule.second_limit() == pytest.approx(2.0 ** (ceiling(rule) + 4.0)) or bits > 3


@pytest.mark.parametrize(("power", "slope"), [(8, 0.0), (5, 0.9), (0, 3.0)])
@every_kind
def test_growth_by_a_power_of_the_steps_or_by_a_steady_factor_is_healthy(kind, power, slope):
    rule = Adaptive(kind=kind)
    assert set(levels(rule, *(2.0 ** (slope * step - 120) * step**power for step in range(1, 41)))) == {"NORMAL"}


def test_an_unusual_batch_is_a_warning_and_counts_as_healthy_as_soon_as_it_is_over():
    rule = taught("B")
    distance = -4 - ceiling(rule)
    seen = rule.state()["margin"]["largest"]
    assert (len(seen), rule.state()["margin"]["margin"]) == (57, 2.5)
    assert levels(rule, 2.0**-4) == ["WARNING"]
    assert (rule.state()["held"], rule.state()["margin"]["count"]) == (pytest.approx(distance), 57)
    assert levels(rule, TINY) == ["NORMAL"]
    assert rule.state()["margin"]["margin"] == pytest.approx(distance + 0.5)
    assert levels(rule, 2.0**-4) == ["NORMAL"]


def test_fourteen_bits_are_too_much_for_any_batch():
    rule = taught()
    limit = rule.limit()
    assert limit == pytest.approx(2.0 ** (ceiling(rule) + 14))
    assert levels(rule, 0.999 * limit, TINY, 1.001 * limit) == ["WARNING", "NORMAL", "ERROR"]


def test_the_first_three_values_are_judged_by_the_published_rule_alone():
    rule = Adaptive()
    assert levels(rule, 5.0, 320.0, 2560.0, 5.0, 2560.0) == ["NORMAL"] * 5
    assert rule.update(20000.0).level is Level.WARNING
    assert rule.broken == 10000.0
    assert Adaptive().update(2e6).reason.endswith("threshold 1000000")
    assert Adaptive(kind="W").update(2e6).level is Level.NORMAL
    rule = taught(steps=2)
    assert rule.second_limit() == inf
    rule.update(TINY)
    assert rule.second_limit() < 1.0


@pytest.mark.parametrize(("kind", "drop"), [("B", 1.26), ("W", 1.63), ("A", 1.63)])
def test_a_value_far_below_the_smallest_is_a_warning_and_learned(kind, drop):
    rule = taught(kind)
    least = rule.least()
    assert least == pytest.approx(2.0 ** (rule.state()["trace"]["low"] - drop))
    assert rule.update(1.001 * least).level is Level.NORMAL
    far = 2.0 ** (rule.state()["trace"]["low"] + 14)
    verdict = rule.update(2.0**-14)
    assert (verdict.level, rule.broken) == (Level.WARNING, pytest.approx(least / 2**drop, rel=0.01))
    assert f"1/{far:.3g} " in verdict.reason
    assert rule.state()["trace"]["low"] == -14


def test_a_value_that_falls_fast_is_no_anomaly_in_the_first_twenty_steps():
    assert levels(Adaptive(kind="W"), *(4.0**-step for step in range(21))) == ["NORMAL"] * 20 + ["WARNING"]


@pytest.mark.parametrize(("steps", "level"), [(7, "NORMAL"), (8, "WARNING")])
def test_a_first_zero_is_a_warning_once_eight_values_are_known(steps, level):
    rule = taught(steps=steps)
    assert rule.least() == (2.0**-126 if steps == 8 else 0.0)
    assert levels(rule, 0.0) == [level]


def test_a_healthy_zero_ends_a_row_of_high_values_but_none_of_errors_after_which_the_level_is_learned_anew():
    rule = taught("W")
    levels(rule, 0.0)
    assert levels(rule, *[2.0**-4, 0.0] * 4) == ["WARNING", "NORMAL"] * 4
    assert levels(rule, *[2.0**-4, 2.0**-4, 2.0**-4, 0.0] * 40).count("ERROR") == 21


def test_a_zero_is_never_learned_and_a_warning_where_there_was_none():
    rule, twin = taught("B"), taught("B")
    verdict = rule.update(0.0)
    assert (verdict.level, rule.broken, rule.state()) == (Level.WARNING, inf, {**twin.state(), "zeros": 1})


@every_kind
def test_a_site_where_zeros_are_healthy_has_no_lower_limit(kind):
    never, sometimes = taught(kind), Adaptive(kind=kind)
    for size in stream(2, 30, spread=0.1):
        assert levels(sometimes, 0.0, size) == ["NORMAL"] * 2
    assert sometimes.least() == 0.0 < never.least()
    small = 2.0**-100
    assert levels(sometimes, 0.0, small) == ["NORMAL"] * 2
    assert levels(never, small) == ["WARNING"]
    other = Adaptive(kind=kind)
    other.restore(json.loads(json.dumps(sometimes.state())))
    assert other.least() == 0.0


def test_after_twenty_alarms_in_a_row_the_level_is_learned_anew():
    rule = taught("B")
    before = rule.state()["trace"]
    assert levels(rule, *[2.0**-4] * 22) == ["WARNING"] * 2 + ["ERROR"] * 20
    assert rule.state()["trace"] == before
    assert levels(rule, *[2.0**-4] * 60) == ["ERROR"] + ["NORMAL"] * 59
    assert rule.state()["trace"]["env"] == -4


@pytest.mark.parametrize("bits", [1000, 1006, 1018])
def test_no_limit_is_larger_than_the_largest_power_of_two(bits):
    rule = taught(steps=3, size=2.0**bits, spread=0)
    assert rule.limit() == pytest.approx(2.0 ** min(bits + 8 * log2(4 / 3) + 14, 1023.0))
    assert rule.second_limit() == pytest.approx(2.0 ** min(bits + 8 * log2(4 / 3) + 4, 1023.0))


@pytest.mark.parametrize("size", [inf, nan])
def test_a_value_that_is_not_finite_is_an_error_with_the_limit_of_the_site_and_teaches_nothing(size):
    rule = taught()
    limit, state = rule.limit(), rule.state()
    assert isfinite(limit)
    assert rule.update(size)[::3] == (Level.ERROR, limit)
    assert rule.update(size).reason == "weight gradient: not finite"
    assert rule.state() == state


def test_sites_that_share_a_margin_follow_it_and_leave_its_state_to_others():
    margin = Margin(kind_of("W"))
    rule = taught(margin=margin)
    assert "margin" not in rule.state()
    assert rule.second_limit() == pytest.approx(2.0 ** (ceiling(rule) + 4.0))
    margin.refit()
    assert margin.state()["count"] == 1
    for _ in range(20):
        margin.add(5.0)
        margin.refit()
    assert rule.second_limit() == pytest.approx(2.0 ** (ceiling(rule) + margin.bits))
    assert margin.bits > 4.0


@pytest.mark.parametrize(("size", "published"), [(TINY, False), (2.0**10, True)])
def test_the_limit_is_the_lower_of_its_own_and_the_published_one(size, published):
    rule, norm, own = taught("B", size=size), Threshold(), taught("W", size=size)
    norm.restore(rule.state()["norm"])
    assert (norm.limit() < own.limit()) is published
    assert rule.limit() == min(own.limit(), norm.limit())


def test_what_an_error_and_what_is_high_leave_behind():
    def left(*sizes):
        rule = taught()
        levels(rule, *sizes)
        state = rule.state()
        return state["errors"], state["high"], state["held"]

    held = pytest.approx(-3 - ceiling(taught()))
    assert left(2.0**-3) == (0, 1, held)
    assert left(2.0**-3, 2.0**-4) == (0, 2, held)  # the larger one
    assert left(2.0**-3, 2.0**8) == (1, 2, None)
    assert left(2.0**8, 2.0**-3) == (0, 2, held)
    assert left(2.0**8, 2.0**-3, TINY) == (0, 0, None)


def test_a_state_whose_last_part_is_wrong_changes_nothing():
    rule = taught("B")
    state = rule.state()
    with pytest.raises(StateError):
        rule.restore({**state, "norm": {**state["norm"], "count": 7}, "margin": {}})
    assert rule.state() == state
    with pytest.raises(StateError):
        Adaptive(kind="W").restore(state)


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^kind .*'Y', .*B \(gradient\), W "):
        Adaptive(kind="Y")


def test_what_is_above_the_published_threshold_stays_an_error_however_long_it_lasts():
    rule = Adaptive()
    assert {rule.update(2e6).level for _ in range(30)} == {Level.ERROR}

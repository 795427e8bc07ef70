"""History against a plain computation of its formulas, and what must hold whatever it is fed."""

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import ConfigError, Level, StateError
from asd.rules import SilentCheckV3, Threshold
from asd.tiers import FEATURES, KINDS, Features, Finite, History, Tails, kind_of

often = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = st.floats(1e-45, 3e38, width=64)
ANYTHING = st.one_of(SIZES, st.sampled_from([0.0, 1e-45, 3e38, math.inf, math.nan]))


def features(size, elements=100):
    return Features(size, 5 * size, size / 4, 0, elements)


def stream(seed, length, spread=0.5):
    generator = random.Random(seed)
    return [2.0 ** generator.gauss(-10, spread) for _ in range(length)]


def plain(kind, sizes):
    """The maximum's level by the formulas as they are written down, with no margin fitted."""
    envelope = {"Y": 0.8, "B": 2.5, "W": 2.4}[kind]
    most = {"Y": math.inf, "B": 12.2, "W": 13.3}[kind]
    mu = dev = env = None
    levels = []
    for size in sizes:
        x = math.log2(size)
        n = len(levels)
        if n >= 5:
            z, e = (x - mu) / max(dev, 0.05), x - env
            levels.append(z > most or e > (envelope if n >= 20 else 1.5 * envelope))
        else:
            levels.append(False)
        if n == 0:
            mu, dev, env = x, 0.2, x
        elif not levels[-1]:
            distance, b = abs(x - mu), min(0.95, n / (n + 1))
            mu += (1 - b) * ((min(x, mu + 4) if n > 20 else x) - mu)
            dev += max(0.02, 1 / (n + 1)) * (min(distance, 4 * dev + 0.05) - dev)
            env = max(x, env - 0.01)
    return levels, mu, dev, env


@pytest.mark.parametrize("kind", KINDS)
def test_levels_and_state_are_those_of_the_written_formulas(kind):
    sizes = stream(3, 150, spread=0.15)
    sizes[149] *= 2**4  # the last, for a value that is not learned changes the count of those that are
    history = History(kind)
    found = [history.update(features(size)).level is Level.ERROR for size in sizes]
    expected, mu, dev, env = plain(kind, sizes)
    assert found == expected
    assert found.count(True) == 1
    trace = history.state()["max_abs"]
    assert (trace["mu"], trace["dev"], trace["env"]) == pytest.approx((mu, dev, env), rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "just_below", "just_above"), [("Y", 0.79, 0.81), ("B", 2.49, 2.51), ("W", 2.39, 2.41)]
)
def test_the_envelope_of_each_kind_has_its_width_after_20_values_and_half_as_much_again_before(
    kind, just_below, just_above
):
    for count, factor in [(10, 1.5), (40, 1.0)]:
        for bits, level in [(just_below * factor, Level.NORMAL), (just_above * factor, Level.ERROR)]:
            history = History(kind)
            for step in range(count):  # a wide spread, so that deviations say nothing
                history.update(features(2.0 ** (-2 * (step % 2))))
            envelope = history.state()["max_abs"]["env"]
            assert history.update(features(2.0 ** (envelope + bits))).level is level


def test_the_first_five_values_are_judged_by_the_published_rules_alone():
    history = History("B")
    levels = [history.update(features(size)).level.name for size in (1.0, 2.0**6, 2.0**9, 1.0, 2.0**9)]
    assert levels == ["NORMAL", "NORMAL", "NORMAL", "NORMAL", "NORMAL"]
    assert History("B").update(Features(1e6, 2e6, 1.0)).reason == (
        "gradient: L2 norm: value above the first absolute threshold 1000000"
    )
    assert History("Y").update(Features(1e6, 2e6, 1.0)).level is Level.NORMAL


def test_a_norm_far_below_the_smallest_is_a_warning_and_learned():
    history = History("W")
    for size in stream(1, 50, spread=0.1):
        history.update(features(size))
    verdict = history.update(features(2.0**-13))
    assert (verdict.level, history.feature) == (Level.WARNING, "l2")
    assert verdict.reason == "weight gradient: L2 norm less than 1/3.1 of the recent smallest"
    assert history.state()["l2"]["low"] == pytest.approx(math.log2(5 * 2.0**-13))


def test_zeros_are_never_learned_and_are_a_warning_where_there_were_none():
    history, twin = History("B"), History("B")
    for size in stream(2, 30):
        history.update(features(size))
        twin.update(features(size))
    verdict = history.update(features(0.0))
    assert (verdict.level, verdict.reason) == (Level.WARNING, "gradient: all zero, which it never was before")
    assert history.state() == twin.state()
    sparse = History("B")
    for size in stream(2, 30):
        sparse.update(features(0.0))
        sparse.update(features(size))
    assert sparse.update(features(0.0)).level is Level.NORMAL


def test_a_maximum_that_stays_high_for_many_steps_is_a_warning():
    history = History("W")
    for step in range(60):
        history.update(features(1.0 if step % 2 else 1.1))
    verdicts = [history.update(features(2.0**0.8)) for _ in range(12)]
    levels = [verdict.level for verdict in verdicts]
    first = levels.index(Level.WARNING)
    assert Level.ERROR not in levels
    assert verdicts[first].reason == "weight gradient: maximum above its mean for many steps"
    assert 2 <= first <= 6


def test_after_twenty_alarms_in_a_row_the_level_is_learned_anew():
    history = History("B")
    for size in stream(4, 60, spread=0.1):
        history.update(features(size))
    before = history.state()["max_abs"]
    for _ in range(20):
        assert history.update(features(2.0**-4)).level is Level.ERROR
    assert history.state()["max_abs"] == before
    levels = [history.update(features(2.0**-4)).level for _ in range(60)]
    assert levels == [Level.ERROR] + [Level.NORMAL] * 59
    assert history.state()["max_abs"]["mu"] == -4


def test_a_level_that_was_accepted_is_learned_at_once():
    history = History("B")
    for size in stream(4, 60, spread=0.1):
        history.update(features(size))
    assert history.update(features(2.0**-4)).level is Level.ERROR
    history.accept()
    assert history.update(features(2.0**-4)).level is Level.ERROR
    assert history.update(features(2.0**-4)).level is Level.NORMAL


def test_margins_widen_to_the_tail_of_healthy_distances_and_never_below_the_measured_ones():
    kind = kind_of("B")
    quiet, wild = Tails(kind, 1e6), Tails(kind, 1e6)
    generator = random.Random(8)
    distances = [generator.expovariate(2.0) for _ in range(5000)]
    for distance in distances:
        quiet.envelope[0].add(distance / 100)
        wild.envelope[0].add(distance)
    for tails in (quiet, wild):
        assert tails.envelope[0].margin == 2.5
        tails.refit()
    assert quiet.envelope[0].margin == 2.5
    largest = sorted(distances)[-64:]
    expected = largest[0] + (sum(largest) / 64 - largest[0]) * math.log(64 / (5000 * 1e-6))
    assert wild.envelope[0].margin == pytest.approx(expected)
    assert wild.envelope[0].margin == pytest.approx(math.log(1e6) / 2, rel=0.3)  # the true quantile
    wild.envelope[0].add(1e3)
    wild.refit()
    assert wild.envelope[0].margin == pytest.approx(math.log2(1e6) / 2)


@often
@given(st.sampled_from(sorted(KINDS)), st.lists(ANYTHING, min_size=1, max_size=40), st.integers(0, 40))
def test_a_restored_history_goes_on_as_if_it_had_never_stopped(kind, sizes, stop):
    history = History(kind)
    for size in sizes[:stop]:
        history.update(features(size))
    other = History(kind)
    other.restore(json.loads(json.dumps(history.state())))
    for size in sizes[stop:]:
        assert repr(other.limit()) == repr(history.limit())
        assert repr(other.update(features(size))) == repr(history.update(features(size)))
    assert other.state() == history.state()


@often
@given(st.sampled_from(sorted(KINDS)), st.lists(ANYTHING, max_size=40))
def test_nothing_but_finite_numbers_ever_enters_the_state(kind, sizes):
    history = History(kind)
    for size in sizes:
        verdict = history.update(features(size))
        if not math.isfinite(size * 5):
            assert verdict.level is Level.ERROR
    json.dumps(history.state(), allow_nan=False)
    assert all(limit > 0 and not math.isnan(limit) for limit in history.limit().values())


@often
@given(st.sampled_from(sorted(KINDS)), st.lists(SIZES, max_size=40), st.floats(0.01, 100))
def test_it_is_never_looser_than_the_published_rules(kind, sizes, ratio):
    history, square, norm = History(kind), SilentCheckV3(learn_errors=False), Threshold()
    for size in sizes:
        seen = Features(size, size * ratio, size / 4)
        published = [square.update(size * size)] + ([norm.update(seen.l2)] if kind == "B" else [])
        verdict = history.update(seen)
        assert verdict.level >= max(each.level for each in published)


@often
@given(st.sampled_from(sorted(KINDS)), st.lists(SIZES, min_size=1, max_size=40))
def test_a_finite_tensor_is_an_error_exactly_when_a_feature_is_above_its_limit(kind, sizes):
    history = History(kind)
    for size in sizes:
        seen, limit = features(size), history.limit()
        above = any(getattr(seen, feature) > limit[feature] for feature in FEATURES)
        verdict = history.update(seen)
        assert (verdict.level is Level.ERROR) is above or not seen.finite
        assert verdict.limit == limit[history.feature]
        assert verdict.value == getattr(seen, history.feature)


def test_a_state_that_cant_have_been_saved_is_refused_and_changes_nothing():
    history = History("B")
    for size in stream(5, 30):
        history.update(features(size))
    state = history.state()
    for key, value in [
        ("cusum", math.nan), ("errors", -1), ("max_abs", {**state["max_abs"], "mu": math.inf}), ("l2", 3),
        ("l2", {**state["l2"], "low": 1e3}), ("tails", state["tails"][:-1]), ("square", {}), ("norm", {}),
    ]:  # fmt: skip
        with pytest.raises(StateError):
            history.restore({**state, key: value})
        assert history.state() == state
    with pytest.raises(StateError):
        History("Y").restore(state)


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^kind has the value 'X', .*Y \(forward\), B \(gradient\), W"):
        History("X")


def test_finite_flags_what_is_no_number_and_nothing_else():
    tier = Finite("Y")
    assert tier.update(Features(3e38, 3e38, 1.0)).level is Level.NORMAL
    verdict = tier.update(Features(3.0, math.inf, math.inf, 1))
    assert (verdict.level, verdict.reason, verdict.value) == (Level.ERROR, "forward: not finite", math.inf)
    assert tier.update(Features(1.0, 2.0, 1.0, 1)).level is Level.ERROR
    tier.restore(tier.state())
    with pytest.raises(StateError):
        tier.restore({"n": 1})

"""History against a plain computation of its formulas, and what must hold whatever it is fed."""

import json
import math
import random

import pytest
from asd.rules.readings.features import FEATURES, Features
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import ConfigError, Level, StateError
from asd.rules import Threshold
from asd.rules.history import History, Margins
from asd.rules.readings.kinds import KINDS, kind_of

often = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = st.floats(1e-45, 3e38, width=64)
ANYTHING = st.one_of(SIZES, st.sampled_from([0.0, 1e-45, 3e38, math.inf, math.nan]))


def features(size, elements=100):
    return Features(size, 5 * size, size / 4, 0, elements)


def stream(seed, length, spread=0.5):
    generator = random.Random(seed)
    return [2.0 ** generator.gauss(-10, spread) for _ in range(length)]


def taught(kind):
    history = History(kind)
    for size in stream(4, 60, spread=0.1):
        assert history.update(features(size)).level is Level.NORMAL
    return history


def plain(kind, sizes):
    """Level and trace of the maximum by the formulas as they are written down, before any margin is fitted."""
    margin = {"Y": 1.7, "B": 4.0, "W": 4.0, "A": 4.0}[kind]
    most = {"Y": math.inf, "B": 24.4, "W": 26.6, "A": 26.6}[kind]
    mu = dev = env = rise = None
    levels, n, high = [], 0, 0
    for size in sizes:
        x = math.log2(size)
        level = Level.NORMAL
        if n >= 3:
            ceiling = env + max(rise, 8 * math.log2(1 + 1 / n))
            z = (x - mu) / max(dev, 0.05)
            if x > ceiling + margin or (n >= 20 and z > most):
                high += 1
                level = Level.ERROR if kind == "Y" or high >= 3 or x > ceiling + 14 else Level.WARNING
            else:
                high = 0
        levels.append(level)
        if n == 0:
            mu, dev, env, rise, n = x, 0.2, x, 0.0, 1
        elif level is Level.NORMAL:
            distance, b = abs(x - mu), min(0.95, n / (n + 1))
            mu += (1 - b) * ((min(x, mu + 4) if n > 20 else x) - mu)
            dev += max(0.02, 1 / (n + 1)) * (min(distance, 4 * dev + 0.05) - dev)
            rise = max(x - env, 0.9 * rise)
            env = max(x, env - 0.01)
            n += 1
    return levels, mu, dev, env, rise


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [3, 6, 20])
def test_levels_and_state_are_those_of_the_written_formulas(kind, bits):
    sizes = stream(3, 18, spread=0.15)
    sizes[9] *= 2.0**bits
    sizes[14:] = [size * 2.0**bits for size in sizes[14:]]
    history = History(kind)
    found = [history.update(features(size)).level for size in sizes]
    expected, mu, dev, env, rise = plain(kind, sizes)
    assert found == expected
    margin = 0.5 + max(0.0, 2 * (dev - 0.1)) if kind == "Y" else 4.0
    ceiling = env + max(rise, 8 * math.log2(1 + 1 / expected.count(Level.NORMAL)))
    second = 2.0 ** (ceiling + margin)
    assert history.second_limit() == pytest.approx({"max_abs": second, "l2": 5 * second, "mean_abs": second / 4})
    assert (Level.ERROR in found) is (bits > 3)
    trace = history.state()["max_abs"]
    assert (trace["mu"], trace["dev"], trace["env"], trace["rise"]) == pytest.approx((mu, dev, env, rise), rel=1e-12)


@pytest.mark.parametrize(("power", "slope"), [(8, 0.0), (5, 0.9), (0, 3.0)])
@pytest.mark.parametrize("kind", KINDS)
def test_growth_by_a_power_of_the_steps_or_by_a_steady_factor_is_healthy(kind, power, slope):
    history = History(kind)
    for step in range(1, 200):
        size = 2.0**-900 * step**power * 2.0 ** (slope * step)
        assert history.update(features(size)).level is Level.NORMAL


def test_an_output_is_an_error_at_once_and_a_gradient_when_it_lasts_for_three_steps():
    for kind, expected in (("Y", ["ERROR"] * 4), ("B", ["WARNING", "WARNING", "ERROR", "ERROR"])):
        history = taught(kind)
        before = history.state()["max_abs"]
        assert [history.update(features(2.0**-4)).level.name for _ in range(4)] == expected
        assert history.state()["max_abs"] == before
        assert history.update(features(2.0**-10)).level is Level.NORMAL


@pytest.mark.parametrize("kind", ["B", "W"])
def test_an_unusual_batch_is_a_warning_each_time_and_widens_the_margins(kind):
    history = taught(kind)
    assert [tail["count"] for tail in history.state()["tails"]] == [57, 57, 57, 40]
    margin = history.state()["tails"][0]["margin"]
    levels = []
    for _ in range(3):
        levels.append(history.update(features(2.0**-4)).level.name)
        assert len(history.state()["held"]) == 4
        history.restore(history.state())
        levels += [history.update(features(2.0**-10)).level.name for _ in range(2)]
    assert levels == ["WARNING", "NORMAL", "NORMAL"] * 3
    assert history.state()["tails"][0]["margin"] > margin + 1


@pytest.mark.parametrize("feature", FEATURES)
def test_one_feature_alone_makes_a_warning_and_one_that_is_0_makes_no_error(feature):
    history = taught("B")
    wrong = features(2.0**-10)._replace(**{feature: 1.001 * history.second_limit()[feature]})
    assert (history.update(wrong).level, history.feature) == (Level.WARNING, feature)
    assert history.update(features(2.0**-10)._replace(l2=0.0, mean_abs=0.0)).level is not Level.ERROR


def test_an_error_counts_among_the_three_steps_in_which_a_gradient_is_high():
    history = taught("W")
    levels = [history.update(features(2.0**bits)).level for bits in (8, -4, -4)]
    assert levels == [Level.ERROR, Level.WARNING, Level.ERROR]


def test_fourteen_bits_are_too_much_for_any_batch():
    history = taught("W")
    limit = history.limit()["max_abs"]
    trace = history.state()["max_abs"]
    assert limit == pytest.approx(2.0 ** (trace["env"] + max(trace["rise"], 8 * math.log2(1 + 1 / 60)) + 14))
    assert history.update(features(1.001 * limit)).level is Level.ERROR
    for feature in FEATURES:
        wrong = features(2.0**-10)._replace(**{feature: 1.001 * history.limit()[feature]})
        assert (history.update(wrong).level, history.feature) == (Level.ERROR, feature)


def test_the_first_three_values_are_judged_by_the_published_rule_alone():
    history = History("B")
    levels = [history.update(features(size)).level.name for size in (1.0, 2.0**6, 2.0**9, 1.0, 2.0**9)]
    assert levels == ["NORMAL"] * 5
    assert History("B").update(Features(1e6, 2e6, 1.0)).reason == (
        "gradient: L2 norm: value above the first absolute threshold 1000000"
    )
    assert History("Y").update(Features(1e6, 2e6, 1.0)).level is Level.NORMAL
    assert history.update(Features(2.0**8, 20000.0, 2.0**6)).level is Level.WARNING
    assert (history.feature, history.broken) == ("l2", 10000.0)


def test_a_norm_far_below_the_smallest_is_a_warning_and_learned():
    history = History("W")
    for size in stream(1, 50, spread=0.1):
        history.update(features(size))
    verdict = history.update(features(2.0**-13))
    assert (verdict.level, history.feature) == (Level.WARNING, "l2")
    assert verdict.reason == "weight gradient: L2 norm less than 1/3.1 of the recent smallest"
    assert history.state()["l2"]["low"] == pytest.approx(math.log2(5 * 2.0**-13))


def test_a_norm_that_falls_fast_is_no_anomaly_in_the_first_twenty_steps():
    history = History("W")
    levels = [history.update(features(4.0**-step)).level for step in range(21)]
    assert levels == [Level.NORMAL] * 20 + [Level.WARNING]


@pytest.mark.parametrize(("steps", "level"), [(7, Level.NORMAL), (8, Level.WARNING)])
def test_a_first_zero_is_a_warning_once_eight_values_are_known(steps, level):
    history = History("W")
    for size in stream(2, steps):
        history.update(features(size))
    assert history.update(features(0.0)).level is level


def test_zeros_are_never_learned_and_are_a_warning_where_there_were_none():
    history, twin = History("B"), History("B")
    for size in stream(2, 30):
        history.update(features(size))
        twin.update(features(size))
    verdict = history.update(features(0.0))
    assert (verdict.level, verdict.reason) == (Level.WARNING, "gradient: all zero, which it never was before")
    assert history.state() == {**twin.state(), "zeros": 1}
    assert history.update(features(0.0)).level is Level.NORMAL  # now it was
    sparse = History("B")
    for size in stream(2, 30):
        sparse.update(features(0.0))
        sparse.update(features(size))
    assert sparse.update(features(0.0)).level is Level.NORMAL


def idle_expert():
    """An output that is its bias alone for 30 steps, but for one with a few tokens' worth of data."""
    history = History("Y")
    for _ in range(30):
        assert history.update(features(2.0**-3)).level is Level.NORMAL
    return history


def test_an_expert_that_gets_its_first_tokens_is_no_anomaly_and_its_size_is_remembered():
    history = idle_expert()
    assert history.state()["max_abs"]["n"] == 3
    for size in (2.0, 2.0**-3, 2.0**-3, 2.0**-3, 2.5, 1.8):
        assert history.update(features(size)).level is Level.NORMAL
    assert history.state()["max_abs"]["env"] == pytest.approx(math.log2(2.5), abs=0.03)
    assert history.update(features(2.0**12)).level is Level.ERROR


def test_an_output_that_no_data_reached_is_an_error_above_fourteen_bits_and_widens_no_other_margin():
    history, tails = idle_expert(), Margins(kind_of("Y"))
    assert history.update(features(2.0**20)).level is Level.ERROR
    shared = History("Y", tails=tails)
    for size in [2.0**-3] * 30 + [2.0]:
        assert shared.update(features(size)).level is Level.NORMAL
        tails.refit()
    assert tails.margins == (1.7, 4.0, 1.7)


def test_the_margin_of_an_output_that_varies_much_is_wider_by_twice_its_deviation_above_the_usual():
    generator = random.Random(4)
    for spread in (0.1, 3.0):
        history = History("Y")
        for size in (2.0 ** generator.uniform(-spread, spread) for _ in range(200)):
            history.update(features(size))
        trace, state = history.state()["max_abs"], history.state()
        on_top = 2 * (trace["dev"] - 0.1) if trace["dev"] > 0.1 else 0.0
        growth = max(trace["rise"], 8 * math.log2(1 + 1 / trace["n"]))
        expected = trace["env"] + growth + state["tails"][0]["margin"] + on_top
        assert history.limit()["max_abs"] == pytest.approx(2.0**expected)
        suspicious = trace["env"] + growth + 0.5 + on_top
        assert history.second_limit()["max_abs"] == pytest.approx(2.0**suspicious)
        assert (on_top > 1) is (spread == 3.0)


def test_an_output_may_become_sixty_times_as_long_at_once():
    history, generator = History("Y"), random.Random(6)
    for step in range(80):
        length = 8 if step < 40 else 500
        size = generator.uniform(0.9, 1.1)
        verdict = history.update(Features(3 * size, size * math.sqrt(64 * length), 0.8 * size))
        assert verdict.level is Level.NORMAL
    assert history.update(Features(30.0, math.sqrt(64 * 500), 0.8)).level is Level.ERROR


def test_a_margin_or_an_idle_output_that_can_not_have_been_saved_is_refused():
    history, other = taught("Y"), History("Y")
    state = history.state()
    for wrong in ({"last": 3, "now": False}, {"last": [], "now": 1}, {"last": [math.nan], "now": True}, {}):
        with pytest.raises(StateError):
            other.restore({**state, "idle": wrong})
    for margin in (3.9, 10.1):
        with pytest.raises(StateError, match="a number from 4 to 10"):
            other.restore(
                {**state, "tails": [state["tails"][0], {**state["tails"][1], "margin": margin}, state["tails"][2]]}
            )


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
    history = taught("B")
    before = history.state()["max_abs"]
    levels = [history.update(features(2.0**-4)).level.name for _ in range(22)]
    assert levels == ["WARNING"] * 2 + ["ERROR"] * 20
    assert history.state()["max_abs"] == before
    levels = [history.update(features(2.0**-4)).level for _ in range(60)]
    assert levels == [Level.ERROR] + [Level.NORMAL] * 59
    assert history.state()["max_abs"]["mu"] == -4


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
@given(st.lists(SIZES, max_size=40), st.floats(0.01, 100))
def test_at_gradients_of_activations_it_is_never_looser_than_the_default_rule(sizes, ratio):
    history, norm = History("B"), Threshold()
    for size in sizes:
        seen = Features(size, size * ratio, size / 4)
        assert history.update(seen).level >= norm.update(seen.l2).level


@often
@given(st.sampled_from(sorted(KINDS)), st.lists(SIZES, min_size=1, max_size=40))
def test_a_finite_tensor_is_an_error_exactly_when_a_feature_is_above_its_limit(kind, sizes):
    history = History(kind)
    for size in sizes:
        seen, limit, second = features(size), history.limit(), history.second_limit()
        above, suspicious = (any(getattr(seen, name) > most[name] for name in FEATURES) for most in (limit, second))
        verdict = history.update(seen)
        assert not (suspicious and kind_of(kind).gradient and verdict.level is Level.NORMAL)
        assert (verdict.level is Level.ERROR) is above or not seen.finite
        assert verdict.limit == limit[history.feature]
        assert verdict.value == getattr(seen, history.feature)


def test_a_state_that_cant_have_been_saved_is_refused_and_changes_nothing():
    history = History("B")
    for size in stream(5, 30):
        history.update(features(size))
    state = history.state()
    for key, value in [
        ("cusum", math.nan),
        ("errors", -1),
        ("max_abs", {**state["max_abs"], "mu": math.inf}),
        ("l2", 3),
        ("l2", {**state["l2"], "low": 1e3}),
        ("tails", state["tails"][:-1]),
        ("norm", {}),
        ("high", -1),
        ("held", [1.0]),
        ("held", [1.0, 1.0, math.inf, 1.0]),
    ]:
        with pytest.raises(StateError):
            history.restore({**state, "norm": {**state["norm"], "count": 7}, key: value})
        assert history.state() == state
    with pytest.raises(StateError):
        History("Y").restore(state)


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^kind has the value 'X', .*Y \(forward\), B \(gradient\), W"):
        History("X")

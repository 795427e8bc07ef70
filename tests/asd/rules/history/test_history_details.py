"""What a history remembers, says and allows in the cases at its edges, exactly."""

import inspect
from math import inf, log2, nan

import pytest
from asd.rules.history.early_signs import EarlySigns
from asd.rules.readings.features import FEATURES, Features

from asd import Level
from asd.rules import Threshold
from asd.rules.history import History, Margins
from asd.rules.readings.kinds import kind_of
from asd.rules.trace import Trace

TINY = 2.0**-10


def features(size):
    return Features(size, 5 * size, size / 4, 0, 100)


def taught(kind, steps=60, *, spread=2.0**-6, tails=None, size=TINY):
    history = History(kind, tails=tails)
    for step in range(steps):
        history.update(features(size * 2.0 ** (spread * (step % 3))))
    return history


def test_what_a_new_history_remembers_allows_and_names():
    history = History("W")
    assert (history.feature, history.broken) == ("max_abs", inf)
    state = history.state()
    assert {key: state[key] for key in ("errors", "high", "held", "cusum", "zeros")} == {
        "errors": 0,
        "high": 0,
        "held": [],
        "cusum": 0.0,
        "zeros": 0,
    }
    assert history.least() == dict.fromkeys(FEATURES, 0.0)
    assert history.limit() == history.second_limit() == dict.fromkeys(FEATURES, inf)
    mine, rules = (inspect.signature(each).parameters for each in (History, Threshold))
    assert [mine[name].default for name in ("upper", "sigma", "min_steps")] == [
        rules[name].default for name in ("upper", "sigma", "min_steps")
    ]


@pytest.mark.parametrize("bits", [1018.0, 1019.5, 1022.0])
def test_no_limit_is_larger_than_the_largest_power_of_two(bits):
    history = History("Y")
    for _ in range(3):
        history.update(Features(2.0**bits, 1.0, 2.0**bits))
        history.update(Features(2.0**bits, 2.0, 2.0 ** (bits - 1)))
    ceiling = bits + 8 * log2(7 / 6)
    assert history.limit()["max_abs"] == pytest.approx(2.0 ** min(ceiling + 1.7, 1023.0))


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("size", [float("inf"), nan])
def test_one_feature_that_is_not_finite_is_an_error_with_the_limit_of_the_maximum(feature, size):
    history = taught("W")
    limit = history.limit()["max_abs"]
    verdict = history.update(features(TINY)._replace(**{feature: size}))
    assert (verdict.level, verdict.reason, verdict.limit) == (Level.ERROR, "weight gradient: not finite", limit)


def ceiling(history, feature):
    state = history.state()[feature]
    return Trace.of("x", state).ceiling


@pytest.mark.parametrize("spread", [2.0**-8, 1.0])
@pytest.mark.parametrize("kind", ["W", "Y"])
def test_each_feature_has_its_own_margin_and_a_gradient_the_narrower_of_two(kind, spread):
    tails = Margins(kind_of(kind))
    history = taught(kind, tails=tails, spread=spread)
    before = history.second_limit()
    for _ in range(20):
        tails.add([5.0, 6.0, 7.0, 45.0])
        tails.refit()
    margins = tails.margins
    assert margins[:3] == (5.0, 6.0, 7.0)
    state = history.state()
    wide = [2 * max(0.0, state[feature]["dev"] - 0.1) * (kind == "Y") for feature in FEATURES]
    bits = [ceiling(history, feature) + margins[i] + wide[i] for i, feature in enumerate(FEATURES)]
    if kind == "W":
        bits[0] = min(bits[0], state["max_abs"]["mu"] + 45.0 * max(state["max_abs"]["dev"], 0.05))
        assert history.second_limit() != before
    found = history.second_limit() if kind == "W" else history.limit()
    assert found == pytest.approx({feature: 2.0**each for feature, each in zip(FEATURES, bits, strict=True)})


def test_the_limit_of_a_norm_is_the_lower_of_its_own_and_the_published_one():
    for size, published in ((TINY, False), (2.0**10, True)):
        history = taught("B", size=size)
        own = 2.0 ** (ceiling(history, "l2") + 14)
        norm = Threshold()
        norm.restore(history.state()["norm"])
        assert (norm.limit() < own) is published
        assert history.limit()["l2"] == pytest.approx(min(own, norm.limit()))


def test_a_restored_history_has_the_limits_of_the_state_at_once():
    tails = Margins(kind_of("W"))
    one, other = (taught("W", tails=tails, size=size) for size in (TINY, 1.0))
    assert one.limit() != other.limit()
    one.restore(other.state())
    assert one.limit() == other.limit()


def test_second_looks_begin_with_the_third_value():
    history = taught("Y", 2)
    assert history.second_limit()["max_abs"] == inf
    history.update(features(TINY))
    assert history.second_limit()["max_abs"] < 1.0


def test_reasons_tell_by_how_much_a_gradient_is_above_what_it_may_be():
    history = taught("W", spread=0.0)
    assert [history.update(features(2.0**bits)).reason for bits in (-5, -5, -5)] == [
        "weight gradient: maximum more than 13.3 deviations above its mean",
        "weight gradient: maximum more than 13.3 deviations above its mean",
        "weight gradient: maximum more than 13.3 deviations above its mean for 3 steps",
    ]
    history = taught("W", 10)
    largest = max(history.state()["max_abs"]["env"], -inf)
    far, near = (2.0 ** (ceiling(history, "max_abs") + margin - largest) for margin in (14.0, 4.0))
    found = [history.update(features(2.0**bits)) for bits in (8, -3, -3)]
    assert [verdict.reason for verdict in found] == [
        f"weight gradient: maximum more than {far:.3g} times the recent largest",
        f"weight gradient: maximum more than {near:.3g} times the recent largest",
        f"weight gradient: maximum more than {near:.3g} times the recent largest for 3 steps",
    ]
    history = taught("Y", 10)
    largest = history.state()["l2"]["env"]
    near = 2.0 ** (ceiling(history, "l2") + 4.0 - largest)
    verdict = history.update(Features(TINY, 1.0, TINY / 4))
    assert verdict.reason == f"forward: L2 norm more than {near:.3g} times the recent largest"


def test_a_norm_above_the_published_limit_alone_is_told_in_the_words_of_that_rule():
    history = taught("B", size=2.0**14)
    verdict = history.update(Features(2.0**14, 2.0**20, 2.0**12))
    assert (verdict.level, verdict.reason) == (
        Level.ERROR,
        "gradient: L2 norm: value above the first absolute threshold 1000000",
    )
    verdict = history.update(Features(2.0**40, 2.0**42, 2.0**38))
    assert verdict.reason.startswith("gradient: maximum more than ")
    verdict = history.update(Features(2.0**14, 2.0**42, 2.0**12))
    assert verdict.reason.startswith("gradient: L2 norm more than ")


def test_what_an_error_and_what_is_high_leave_behind():
    history = taught("W")
    history.update(features(2.0**-3))
    assert [history.state()[key] for key in ("errors", "high")] == [0, 1]
    assert len(history.state()["held"]) == 4
    history.update(features(2.0**8))
    assert [history.state()[key] for key in ("errors", "high", "held")] == [1, 2, []]
    history = taught("W")
    history.update(features(2.0**8))
    history.update(features(2.0**-3))
    assert [history.state()[key] for key in ("errors", "high")] == [0, 2]
    history.update(features(TINY))
    assert [history.state()[key] for key in ("errors", "high", "held")] == [0, 0, []]


def test_an_output_that_becomes_idle_has_no_errors_in_a_row():
    history = taught("Y", 10)
    history.update(features(TINY))
    history.update(features(2.0**8))
    assert history.state()["errors"] == 1
    history.update(features(TINY))
    assert history.state()["errors"] == 0


def test_an_output_is_idle_whether_or_not_its_mean_has_a_logarithm():
    history = History("Y")
    for _ in range(8):
        history.update(Features(TINY, 5 * TINY, 0.0))
    assert history.state()["max_abs"]["n"] == 3


def test_features_that_are_zero_are_left_out_of_margins():
    history = History("W")
    for step in range(40):
        history.update(Features(TINY * (1 + step % 2), 0.0, 0.0))
    tails = history.state()["tails"]
    assert [tail["count"] for tail in tails] == [37, 0, 0, 20]
    assert [history.state()[feature]["n"] for feature in FEATURES] == [40, 0, 0]


def test_distances_held_without_deviations_are_kept_so():
    history = taught("W", 10)
    history.update(features(2.0**-3))
    state = history.state()
    assert state["held"][3] is None
    other = History("W")
    other.restore(state)
    assert other.state() == state
    other.update(features(TINY))
    history.update(features(TINY))
    assert other.state() == history.state()
    assert history.state()["tails"][3]["count"] == 0


def warm(mu=0.0, n=30):
    trace = Trace()
    trace.mu, trace.dev, trace.low, trace.n = mu, 1.0, mu, n
    return trace


def test_deviations_above_three_add_up_and_nothing_below_zero_is_kept():
    signs = EarlySigns(kind_of("W"))
    found = []
    for z in (3.5, 3.25, 2.5, 0.0, 4.0, 99.0, 99.0):
        finding = signs.sum_deviations(warm(), z)
        found.append((signs.state()["cusum"], finding is not None))
    sums = (0.5, 0.75, 0.25, 0.0, 1.0, 11.3, 21.6)
    assert found == [(pytest.approx(each), each > 20) for each in sums]
    signs.forget()
    assert signs.state()["cusum"] == 0.0


def test_the_first_zero_is_below_the_smallest_normal_number_and_later_ones_are_below_nothing():
    signs, traces = EarlySigns(kind_of("W")), [warm(n=8), warm(n=0), warm(n=0)]
    assert signs.least(traces) == {"max_abs": 2.0**-126, "l2": 0.0, "mean_abs": 0.0}
    assert signs.judge_zero(traces, features(0.0)).reason == "all zero, which it never was before"
    assert signs.least(traces) == dict.fromkeys(FEATURES, 0.0)
    assert signs.judge_zero(traces, features(0.0)) is None
    assert signs.least([warm(n=7), warm(), warm()]) == dict.fromkeys(FEATURES, 0.0)
    assert signs.least([warm()] * 3) == pytest.approx({"max_abs": 0.0, "l2": 2.0**-1.63, "mean_abs": 2.0**-1.52})

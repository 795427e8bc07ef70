"""Readings that are no sizes of tensors: scores of products, and gradients that the combined scheme samples."""

import json
import math

import pytest

from asd import Config, Level
from asd.errors import StateError
from asd.origin import Origin
from asd.rules.readings.reading import CHECKSUM, SAMPLE, TWICE, Reading
from asd.rules.step.monitor import Monitor
from asd.settings.combined import CombinedConfig

ORIGIN = Origin("run1", 3, "node7", "CPU:0")
TIERS = ("state", "ranks", "checksum")
CONFIGS = {
    "threshold": Config(protection="document", enable=1),
    "tier alone": Config(protection="document", enable=1, tiers=("checksum",)),
    "adaptive": Config(protection="document", enable=1, rule="adaptive", tiers=TIERS),
}


def score(value):
    return Reading("dense.checksum", value, kind=CHECKSUM)


def sample(value):
    return Reading("gradient.weight", value, kind=SAMPLE)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_a_score_above_one_is_an_anomaly_of_the_checksum_whatever_the_rule_and_the_loss_scale(config):
    watch = Monitor(config, ORIGIN)
    assert watch.judges.limit("dense.checksum", CHECKSUM) == 1.0
    assert watch.judge(1, [score(1.0)], loss_scale=2.0**-20).events == []
    event = watch.judge(2, [score(1.5)], loss_scale=2.0**20).fatal
    assert (event.rule, event.feature, event.value, event.limits) == ("checksum", "score", 1.5, (1.0,))
    assert event.checkpoint == "dense.checksum"


@pytest.mark.parametrize("tiers", [("checksum",), ("ranks",), ("state",), ("state", "ranks")])
def test_the_rule_adaptive_judges_gradients_whatever_other_tiers_are_on(tiers):
    alone, beside = (
        Monitor(Config(protection="document", enable=1, rule="adaptive", tiers=each), ORIGIN) for each in ((), tiers)
    )
    for step in range(1, 40):
        for watch in (alone, beside):
            assert watch.judge(step, [Reading("norm", 1e-3)]).events == []
    assert beside.judges.limit("norm") == alone.judges.limit("norm") > beside.judges.second_limit("norm")
    assert beside.judges.second_limit("norm") < 0.1
    goes_on = Monitor(beside.config, ORIGIN)
    goes_on.restore(json.loads(json.dumps(beside.state())))
    for watch in (alone, beside, goes_on):
        event = watch.judge(40, [Reading("norm", 1e13)]).fatal
        assert (event.value, event.feature, event.rule) == (1e13, "l2", "adaptive")


def test_ranks_are_told_that_a_wrong_product_needs_no_comparison():
    seen = Monitor(Config(protection="document", enable=1), ORIGIN).seen([score(1.01), sample(math.inf)])
    assert seen["dense.checksum"].value == math.inf
    assert [each.broken for each in seen.values()] == [True, False]


def combined(tmp=(), clock=lambda: 1000.0):
    config = Config(
        protection="document",
        enable=1,
        combined=CombinedConfig(enable=True, with_checksum=True, strikes_num=2),
        tiers=tmp,
    )
    return Monitor(config, ORIGIN, clock=clock)


@pytest.mark.parametrize("tiers", [(), ("checksum", "ranks")])
def test_a_strike_is_a_second_level_anomaly_of_the_combined_rule_and_one_close_to_it_is_none(tiers):
    watch = combined(tiers)
    for step in range(1, 13):
        assert watch.judge(step, [sample(8.0)], loss_scale=8.0).events == []
    (event,) = watch.judge(13, [sample(8e9)], loss_scale=8.0).events
    assert (event.rule, event.feature, event.level, event.value) == ("combined", "max_square", Level.WARNING, 1e18)
    assert event.limits == (pytest.approx(1e6 + 1.0),)
    assert watch.judge(14, [sample(math.inf)]).events == []
    assert watch.judges.scheme.strikes(1000.0) == 1


@pytest.mark.parametrize("tiers", [(), ("checksum", "ranks")])
def test_strikes_and_samples_are_saved_and_a_restored_monitor_goes_on_as_if_it_had_never_stopped(tiers):
    now = [1000.0]
    one, other = (combined(tiers, clock=lambda: now[0]) for _ in range(2))
    for step in range(1, 13):
        one.judge(step, [sample(1.0), score(0.5), Reading("norm", 1.0)])
    one.judge(13, [sample(1e9)])
    state = json.loads(json.dumps(one.state()))
    assert "dense.checksum" not in json.dumps(state)
    other.restore(state, ["norm", "gradient.weight", "dense.checksum"])
    assert other.state() == one.state()
    for value, later in ((1e9, 0.0), (1e-3, 299.0), (2e9, 300.5)):
        now[0] = 1000.0 + later
        assert other.judge(14, [sample(value)]) == one.judge(14, [sample(value)])
    assert other.judges.scheme.strikes(now[0]) == one.judges.scheme.strikes(now[0]) == 2


@pytest.mark.parametrize("damaged", [7, {}, {"scheme": {}}, {"scheme": None, "samples": {}}])
def test_a_damaged_state_of_the_scheme_is_refused_and_nothing_is_changed(damaged):
    watch = combined()
    watch.judge(1, [sample(math.inf)])
    before = watch.state()
    with pytest.raises(StateError, match="combined scheme"):
        watch.restore({**before, "combined": damaged})
    assert watch.state() == before


def test_a_state_of_a_run_without_the_scheme_is_taken():
    watch = combined()
    watch.restore(Monitor(Config(protection="document", enable=1), ORIGIN).state())
    assert watch.judges.scheme.strikes(0.0) == 0


@pytest.mark.parametrize(("kind", "value"), [("B", 2.0), ("W", 8.0), ("A", 8.0), (SAMPLE, 4.0)])
def test_the_loss_scale_is_in_gradients_of_activations_only(kind, value):
    watch = Monitor(Config(protection="document", enable=1, rule="adaptive"), ORIGIN)
    watch.judge(1, [Reading("dense", 8.0, kind=kind)], loss_scale=4.0)
    assert watch.history["dense"][-1][1] == value


@pytest.mark.parametrize(
    ("kind", "level"), [(CHECKSUM, Level.ERROR), (TWICE, Level.ERROR), ("B", Level.WARNING), ("W", Level.WARNING)]
)
def test_an_overflow_under_a_dynamic_loss_scale_is_expected_of_gradients_only(kind, level):
    watch = Monitor(Config(protection="document", enable=1, rule="adaptive"), ORIGIN)
    (event,) = watch.judge(1, [Reading("dense", math.inf, kind=kind)], loss_scale=4.0, overflow_expected=True).events
    assert event.level is level

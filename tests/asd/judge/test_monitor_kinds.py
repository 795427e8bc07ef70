"""Readings that are no sizes of tensors: scores of products and of calls that were made twice."""

import json
import math

import pytest

from asd import Config, Level
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import CHECKSUM, TWICE, Reading

ORIGIN = Origin("run1", 3, "node7", "CPU:0")
DETECTORS = ("state", "checksum")
CONFIGS = {
    "threshold": Config(protection="document", enable=1),
    "detector alone": Config(protection="document", enable=1, detectors=("checksum",)),
    "adaptive": Config(protection="document", enable=1, rule="adaptive", detectors=DETECTORS),
}


def score(value):
    return Reading("dense.checksum", value, kind=CHECKSUM)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_a_score_above_one_is_an_anomaly_of_the_checksum_whatever_the_rule_and_the_loss_scale(config):
    watch = Monitor(config, ORIGIN)
    assert watch.judges.limit("dense.checksum", CHECKSUM) == 1.0
    assert watch.judge(1, [score(1.0)], loss_scale=2.0**-20).events == []
    assert watch.history["dense.checksum"][-1] == (1, 1.0, 1.0, Level.NORMAL)
    event = watch.judge(2, [score(1.5)], loss_scale=2.0**20).fatal
    assert (event.rule, event.feature, event.value, event.limits) == ("checksum", "score", 1.5, (1.0,))
    assert event.checkpoint == "dense.checksum"


@pytest.mark.parametrize("detectors", [("checksum",), ("state",)])
def test_the_rule_adaptive_judges_gradients_whatever_other_detectors_are_on(detectors):
    alone, beside = (
        Monitor(Config(protection="document", enable=1, rule="adaptive", detectors=each), ORIGIN)
        for each in ((), detectors)
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
    seen = Monitor(Config(protection="document", enable=1), ORIGIN).seen([score(1.01), Reading("norm", 1.0)])
    assert seen["dense.checksum"].value == math.inf
    assert [each.broken for each in seen.values()] == [True, False]


@pytest.mark.parametrize(("kind", "value"), [("B", 2.0), ("W", 8.0), ("A", 8.0)])
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

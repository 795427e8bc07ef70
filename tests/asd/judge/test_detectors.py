"""The judges of a rank: what they keep for a resumed run, and what they say of a step that was made again."""

import json
from random import Random

import pytest

from asd.config import Config
from asd.errors import StateError
from asd.judge.detectors import Detectors
from asd.rules.kinds import KINDS
from asd.rules.reading import Reading
from asd.verdict import Level

CONFIG = Config(protection="document", enable=1, rule="adaptive")
PLAIN = Config(protection="document", enable=1, rule="threshold")


def suspicion(judges, value):
    return judges.suspicion(Reading("layer", value), 1.0)


def step(judges, random, number):
    """One healthy step that every detector sees, and what they said."""
    own = judges.update("layer", "B", random.uniform(0.8, 1.2))
    state = judges.judge_state({"w": ({"max_weight": random.uniform(0.8, 1.2)}, {})})
    judges.end_step()
    return own, state


def trained(steps=40):
    judges, random = Detectors(CONFIG), Random(1)
    for number in range(steps):
        step(judges, random, number)
    return judges


def test_a_resumed_run_goes_on_in_every_detector_as_if_it_had_never_stopped():
    first = trained()
    second = Detectors.of(CONFIG, json.loads(json.dumps(first.state())))
    assert second.state() == first.state()
    random, same = Random(2), Random(2)
    for number in range(40, 60):
        assert step(first, random, number) == step(second, same, number)
    assert second.state() == first.state() != trained().state()


def test_the_end_of_a_step_fits_the_margins_of_all_kinds():
    judges = trained()
    margins = judges.state()["detectors"]["margins"]
    assert {kind: margin["count"] for kind, margin in margins.items()} == {**dict.fromkeys(KINDS, 0), "B": 37}


@pytest.mark.parametrize(
    ("name", "healthy", "later", "level"),
    [
        ("conv.bias", 5e-8, 2e-3, Level.NORMAL),  # rounding, until something behind it makes a gradient of it
        ("conv.bias", 5e-8, 1e3, Level.ERROR),
        ("conv.bias", 5e-2, 2e3, Level.ERROR),
        ("other.bias", 5e-8, 2e-3, Level.ERROR),  # of a weight that nobody knows
    ],
)
def test_a_bias_that_was_rounding_may_become_a_gradient_as_large_as_its_weights(name, healthy, later, level):
    detectors = Detectors(Config(enable=1, rule="adaptive"))
    for step in range(60):
        for each, value in (("conv.weight", 0.1), (name, healthy)):
            assert detectors.update(each, "W", value * (1 + step % 3 / 4)).verdict.level is Level.NORMAL
        detectors.end_step()
    limits = [each.limit(name, "W") for each in (detectors, Detectors.of(detectors._config, detectors.state()))]
    assert limits[0] == limits[1]
    found = detectors.update(name, "W", later).verdict
    assert (found.level, found.value > limits[0]) == (level, level is Level.ERROR)
    if level is Level.NORMAL:
        detectors.end_step()
        assert [detectors.update(name, "W", later).verdict.level for _ in range(9)] == [Level.NORMAL] * 9
        assert detectors.update(name, "W", later * 2.0**20).verdict.level is Level.ERROR


@pytest.mark.parametrize(("key", "damaged"), [("margins", None), ("margins", 3), ("bounds", 3)])
def test_a_damaged_saved_state_of_detectors_or_one_without_a_part_is_refused(key, damaged):
    state = trained(3).state()
    state["detectors"][key] = damaged
    if damaged is None:
        del state["detectors"][key]
    with pytest.raises(StateError, match="saved state of the detectors"):
        Detectors.of(CONFIG, state)


def test_a_state_of_a_run_with_other_detectors_is_refused_by_name():
    with pytest.raises(StateError, match="this run has none"):
        Detectors.of(PLAIN, trained(3).state())
    with pytest.raises(StateError, match=f"this run has {', '.join(CONFIG.active_detectors)}"):
        Detectors.of(CONFIG, Detectors(PLAIN).state())


def test_a_tensor_that_was_zero_or_small_only_once_is_a_suspicion_with_its_lower_limit():
    judges = trained()
    least = judges.least("layer")
    assert 0.2 < least < 0.8
    zero, small = suspicion(judges, 0.0), suspicion(judges, least / 2)
    assert (zero.verdict.level, zero.verdict.value, zero.verdict.limit) == (Level.ERROR, 0.0, least)
    assert (zero.feature, zero.broken) == ("l2", least)
    assert (small.feature, small.verdict.value, small.broken) == ("l2", least / 2, least)
    assert suspicion(judges, 1.0) is None
    judges.update("layer", "B", 0.0)
    assert judges.least("layer") == 0.0
    assert suspicion(judges, least / 2) is suspicion(judges, 0.0) is None


@pytest.mark.parametrize(("rule", "feature"), [("silent_check_v3", "max"), ("threshold", "l2"), ("adaptive", "l2")])
def test_what_a_second_run_does_not_show_is_told_as_the_number_that_was_compared(rule, feature):
    judges = Detectors(Config(protection="document", enable=1, rule=rule))
    for _ in range(30):
        assert judges.update("layer", "B", 0.5).verdict.level is Level.NORMAL
    found = suspicion(judges, 1e7)
    assert (found.verdict.value, found.feature) == (1e7, feature)
    assert found.broken == judges.second_limit("layer") < 1e7

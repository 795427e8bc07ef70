"""The registry: a rule by its name, with the settings that it declares."""

import math

import pytest

from asd import Config
from asd.config import describe
from asd.errors import ConfigError, StateError
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules import RULES, Adaptive, Combined, Rule, SilentCheckV3, Threshold, make_rule
from asd.rules.base import SIGMA, check_state
from asd.rules.reading import Reading
from asd.tuning import proposal
from asd.verdict import Level, Verdict

every_rule = pytest.mark.parametrize("name", RULES)


class TenTimes(Rule):
    """What somebody might add: one class, and nothing else."""

    name, about, feature, takes = "ten_times", "judge by ten times the first value", "l2", ("sigma",)

    def __init__(self, sigma=SIGMA):
        self.sigma, self._first = sigma, math.inf

    def update(self, value):
        limit = self.limit()
        if not value <= limit:
            return Verdict(Level.ERROR, "more than ten times the first", value, limit)
        self._first = min(self._first, value)
        return Verdict(Level.NORMAL, "", value, limit)

    def limit(self):
        return 10 * self._first

    def state(self):
        return {"first": self._first}

    def restore(self, state):
        self._first = check_state(self, state)["first"]


def test_a_rule_that_is_added_to_the_registry_can_be_chosen_and_gets_the_settings_that_it_declares(monkeypatch):
    monkeypatch.setitem(RULES, TenTimes.name, TenTimes)
    environ = {"NPU_ASD_ENABLE": "1", "ASD_RULE": "ten_times", "NPU_ASD_SIGMA_THRESH": "9,8"}
    assert ("ASD_RULE", "ten_times", "environment") in [setting[:3] for setting in describe(environ)]
    config = Config.from_env(environ)
    rule = make_rule(config.rule, upper=config.upper, sigma=config.sigma, learn_errors=False)
    assert (type(rule), rule.sigma) == (TenTimes, (9, 8))
    monitor = Monitor(config, Origin("run", 0, "node7", "CPU:0"))
    found = [monitor.judge(step, [Reading("a", size)]).fatal for step, size in enumerate((1.0, 9.0, 11.0), 1)]
    assert (found[:2], found[2].rule, found[2].limits) == ([None, None], "ten_times", (10.0,))
    with pytest.raises(ConfigError, match="ten_times has thresholds"):
        proposal.tests_of(config)


@every_rule
def test_a_state_with_other_keys_is_an_error_that_lists_the_needed_ones(name):
    rule = make_rule(name)
    before = rule.state()
    needed = ", ".join(before)
    for state in ({}, {**before, "extra": 1}, {"avg": 1.0}, None, 5, [1]):
        with pytest.raises(StateError, match=f"State of rule {name}.*: the keys {needed}"):
            rule.restore(state)
    assert rule.state() == before


NAN, INF = math.nan, math.inf
TRACE = {"env": 0.0, "rise": 0.0, "low": -0.5, "n": 3}
NORMS = {"pre": 1.0, "min": 1.0, "max": 2.0, "count": 3}
SAVED = {
    "threshold": NORMS,
    "silent_check_v3": {"avg": 1.0, "count": 3},
    "combined": {"avg": 1e-3, "pre_value": NAN, "count": 3, "none_zero_count": 2},
    "adaptive": {
        **{"trace": TRACE, "zeros": 0, "errors": 0, "high": 0, "held": None, "norm": NORMS},
        "margin": {"largest": [0.1], "count": 1, "margin": 4.0},
    },
}


@pytest.mark.parametrize(
    ("name", "key", "value", "valid"),
    [
        ("threshold", "pre", NAN, "a finite number"),
        ("threshold", "min", INF, "a finite number"),
        ("threshold", "max", "2", "a number"),
        ("threshold", "max", 10**400, "a number"),
        ("threshold", "pre", True, "a number"),
        ("threshold", "min", 2.5, "at most max, which is 2.0"),
        ("threshold", "pre", 2.5, "from min, .* to max, .* 2.0"),
        ("threshold", "count", 2.0, "an integer of at least 0"),
        ("threshold", "count", -1, "an integer of at least 0"),
        ("threshold", "count", None, "an integer of at least 0"),
        ("silent_check_v3", "avg", NAN, "a finite number"),
        ("combined", "avg", NAN, "a finite number"),
        ("combined", "avg", INF, "a finite number"),
        ("combined", "count", 1, "at most count, which is 1"),
        ("combined", "none_zero_count", 4, "at most count, which is 3"),
        ("combined", "pre_value", "1", "a number"),
        ("adaptive", "trace", TRACE | {"env": NAN}, "a finite number"),
        ("adaptive", "trace", TRACE | {"rise": -0.1}, "a finite number of at least 0"),
        ("adaptive", "trace", TRACE | {"low": 99.0}, "at most env, 0.0"),
        ("adaptive", "trace", TRACE | {"n": 0.5}, "an integer of at least 0"),
        ("adaptive", "zeros", -1, "an integer of at least 0"),
        ("adaptive", "held", "x", "a finite number"),
        ("adaptive", "norm", NORMS | {"pre": INF}, "a finite number"),
        ("adaptive", "margin", {"largest": [], "count": 0, "margin": 99.0}, "a number from 2.5 to 10"),
    ],
)
def test_a_corrupt_state_is_an_error_that_says_what_is_valid_and_changes_nothing(name, key, value, valid):
    rule = make_rule(name, learn_errors=False)
    rule.restore(SAVED[name])
    before = repr(rule.state())
    what = f"(rule ({name}|threshold)|a fitted margin).*"
    with pytest.raises(StateError, match=f"^State of {what}: .*: {valid}.$"):
        rule.restore({**SAVED[name], key: value})
    assert repr(rule.state()) == before


PAIR = "two numbers of at least 3, the first greater than the second"
NO_PAIRS = [(2, 1), (3, 3), (4, 2.5), (10, 9, 8), 10, "10,5", (INF, 5), (NAN, 5), (10, True), (10**400, 5), None]


@pytest.mark.parametrize(
    ("rule", "argument", "wrong", "valid"),
    [
        (Threshold, "upper", NO_PAIRS, PAIR),
        (Threshold, "sigma", NO_PAIRS, PAIR),
        (Threshold, "min_steps", [0, -1, 1.5, True, "7", None], "an integer of at least 1"),
        (SilentCheckV3, "upper", [(5, 5)], PAIR),
        (Combined, "upper_thresh1", [2, 2.9, -5, NAN, INF, "100", True, None], "a number of at least 3"),
        (Combined, "upper_thresh2", [2, NAN, None], "a number of at least 3"),
        (Adaptive, "upper", [(1, 2)], PAIR),
        (Adaptive, "sigma", [(5, 9)], PAIR),
        (Adaptive, "min_steps", [0], "at least 1"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(rule, argument, wrong, valid):
    for value in wrong:
        with pytest.raises(ConfigError, match=valid) as caught:
            rule(**{argument: value})
        assert (caught.value.variable, caught.value.value) == (argument, value) or value != value

import subprocess
import sys

import pytest

from asd.errors import ConfigError, StateError
from asd.rules import RULES, Adaptive, Combined, Rule, SilentCheckV3, Threshold, make_rule

every_rule = pytest.mark.parametrize("name", RULES)


def test_the_names_are_those_of_the_environment_variable():
    assert list(RULES) == ["threshold", "silent_check_v3", "combined", "adaptive"]
    assert list(RULES.values()) == [Threshold, SilentCheckV3, Combined, Adaptive]


def test_each_rule_says_which_feature_it_judges():
    features = {name: rule.feature for name, rule in RULES.items()}
    assert features == {"threshold": "l2", "silent_check_v3": "max_square", "combined": "max_square", "adaptive": "max"}


@every_rule
def test_one_configuration_fits_all_rules(name):
    rule = make_rule(name, upper=(1000, 100), sigma=(50, 5), learn_errors=False)
    assert isinstance(rule, Rule)
    assert rule.name == name


def test_the_options_of_a_rule_reach_it():
    assert make_rule("threshold", upper=(1000, 100)).limit() == 1000
    assert make_rule("silent_check_v3", beta=0.5).beta == 0.5
    assert make_rule("combined", upper_thresh1=7).upper_thresh1 == 7


def test_an_unknown_rule_is_an_error_that_lists_the_valid_ones():
    with pytest.raises(ConfigError, match=r"rule has the value 'v2', .* one of threshold, silent_check_v3, combined"):
        make_rule("v2")


def test_an_unknown_option_is_an_error_that_lists_the_valid_ones():
    with pytest.raises(ConfigError, match=r"beta has .* combined takes only upper_thresh1, upper_thresh2"):
        make_rule("combined", beta=0.9)


@every_rule
def test_a_state_with_other_keys_is_an_error_that_lists_the_needed_ones(name):
    rule = make_rule(name)
    before = rule.state()
    needed = ", ".join(before)
    for state in ({}, {**before, "extra": 1}, {"avg": 1.0}, None, 5, [1]):
        with pytest.raises(StateError, match=f"State of rule {name} has .* which is not valid: the keys {needed}"):
            rule.restore(state)
    assert rule.state() == before


def test_the_rules_need_neither_numpy_nor_mindspore():
    code = "import sys, asd.rules; sys.exit(any(name in sys.modules for name in ('numpy', 'mindspore')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

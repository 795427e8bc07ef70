"""What is true of every rule and every stream of values."""

import functools
import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.rules import RULES, Adaptive, Combined, SilentCheckV3, Threshold, make_rule
from asd.verdict import Level

FACTORIES = {
    **{name: functools.partial(make_rule, name) for name in RULES},
    "threshold, short warm-up": lambda: Threshold((1000, 100), (50, 5), 3),
    "silent_check_v3 that aborts": lambda: SilentCheckV3((100, 10), learn_errors=False),
    "combined, tight": lambda: Combined(3, 3),
    "adaptive, short warm-up": lambda: Adaptive((1000, 100), (50, 5), 3),
}
EXACT = [name for name in FACTORIES if not name.startswith("combined")]
MENDED = [name for name in FACTORIES if name.startswith(("adaptive", "threshold"))]

SPECIAL = (0.0, 1e-45, 1e-38, 1e-9, 1.0, 1e9, 3.4e38, 1.2e77, math.inf, math.nan)
HEALTHY = st.floats(0.5, 2.0)
VALUES = st.one_of(HEALTHY, HEALTHY, HEALTHY, st.sampled_from(SPECIAL), st.floats(0.0, 3.4e38), st.just(1.0))
STREAMS = st.lists(VALUES, max_size=60)
every_rule = pytest.mark.parametrize("name", FACTORIES)


def feed(rule, values):
    """Verdicts and final state as text, in which NaN equals NaN."""
    verdicts = [rule.update(value) for value in values]
    return repr(verdicts), json.dumps(rule.state())


def around(limit):
    """The limit and its neighbours, where the last bit decides."""
    candidates = (limit, math.nextafter(limit, 0.0), math.nextafter(limit, math.inf), limit * (1 + 1e-9))
    return [value for value in candidates if 0 < value <= sys.float_info.max]


@every_rule
@given(before=STREAMS, after=STREAMS)
def test_a_rule_restored_through_json_goes_on_as_if_never_stopped(name, before, after):
    unbroken, restored = FACTORIES[name](), FACTORIES[name]()
    for value in before:
        unbroken.update(value)
    restored.restore(json.loads(json.dumps(unbroken.state())))
    assert feed(restored, after) == feed(unbroken, after)


@every_rule
@given(values=STREAMS)
def test_a_verdict_has_the_value_the_limit_before_and_a_reason_exactly_if_flagged(name, values):
    rule = FACTORIES[name]()
    for value in values:
        limit = rule.limit()
        verdict = rule.update(value)
        assert repr(verdict.value) == repr(value)
        assert verdict.limit == limit
        assert (verdict.reason == "") == (verdict.level is Level.NORMAL)
        assert math.isfinite(value) or verdict.level is Level.ERROR


@every_rule
@given(values=STREAMS, probe=VALUES)
def test_a_value_above_the_limit_is_an_error_and_but_for_combined_no_other(name, values, probe):
    rule = FACTORIES[name]()
    for value in values:
        rule.update(value)
    limit, state = rule.limit(), rule.state()
    assert not math.isnan(limit)
    for value in around(limit) + around(probe):
        rule.restore(state)
        level = rule.update(value).level
        if value > limit:
            assert level is Level.ERROR
        elif name in EXACT:
            assert level is not Level.ERROR


@pytest.mark.parametrize("name", MENDED)
@given(values=STREAMS)
def test_a_mended_state_is_always_finite(name, values):
    rule = FACTORIES[name]()
    for value in values:
        rule.update(value)
        json.dumps(rule.state(), allow_nan=False)


@given(values=STREAMS)
def test_a_value_that_threshold_flagged_leaves_its_state_unchanged(values):
    rule = FACTORIES["threshold, short warm-up"]()
    for value in values:
        before = rule.state()
        flagged = rule.update(value).level is not Level.NORMAL
        assert (rule.state() == before) == flagged


@given(values=st.lists(VALUES.filter(bool), max_size=60))
def test_adaptive_is_never_looser_than_threshold(values):
    adaptive, threshold = Adaptive((1000, 100), (50, 5), 3), Threshold((1000, 100), (50, 5), 3)
    for value in values:
        assert adaptive.limit() <= threshold.limit()
        assert adaptive.update(value).level >= threshold.update(value).level

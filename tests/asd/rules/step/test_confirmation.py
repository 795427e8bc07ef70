"""How often a second look is taken, and what it says."""

import math

import pytest
from asd.rules.readings.features import FEATURES, Features
from hypothesis import given
from hypothesis import strategies as st

from asd import Config, Level
from asd.origin import Origin
from asd.rules.history import History
from asd.rules.readings.reading import SAMPLE, Reading
from asd.rules.step.confirmation import BURST, Allowance, vanished
from asd.rules.step.monitor import Monitor


def reading(name, value, kind="W"):
    return Reading(name, value, value, 0 if math.isfinite(value) else 1, 1, mean_abs=value, kind=kind)


def taught(**readings):
    """A monitor that has seen each checkpoint at 1.0 for twenty steps."""
    watch = Monitor(
        Config(protection="document", enable=1, rule="adaptive"), Origin("run", 0, "host", "0"), [], clock=lambda: 0.0
    )
    for step in range(1, 21):
        assert watch.judge(step, [reading(name, 1.0, kind) for name, kind in readings.items()]).events == []
    return watch


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_no_more_steps_are_made_again_than_the_share_and_the_first_few(share, steps):
    allowance, spent = Allowance(share), 0
    for _ in range(steps):
        if allowance.next_step():
            allowance.spend()
            spent += 1
    assert spent <= BURST + share * steps
    assert (spent > 0) is (share > 0)


def test_only_what_was_suspicious_and_is_there_again_within_its_limits_has_vanished():
    first = [reading(name, 9.0, "B") for name in ("gone", "stays", "missing", "nearly", "counted")]
    first[3] = reading("nearly", 6.0, "B")
    first += [reading("fine", 1.0), reading("weight", 9.0)]
    again = [
        reading("gone", 1.0),
        reading("stays", 9.0),
        reading("fine", 9.0),
        reading("nearly", 4.9),
        reading("counted", 1.0, "B")._replace(calls=2),
        reading("weight", 1.0)._replace(calls=2),
    ]
    found = vanished(first, again, lambda seen: seen.l2 > 5)
    assert [seen.checkpoint for seen in found] == ["gone", "weight"]
    first[-1] = first[-1]._replace(order=-1)  # seen before all others
    assert [seen.checkpoint for seen in vanished(first, again, lambda seen: seen.l2 > 5)] == ["weight", "gone"]


@given(st.sampled_from("BWA"), st.lists(st.floats(0.5, 2.0), min_size=4, max_size=30), st.floats(-3, 16))
def test_above_the_second_level_limit_is_where_a_history_of_gradients_begins_to_warn(kind, sizes, bits):
    history = History(kind)
    for size in sizes:
        history.update(Features(size, 9 * size, size / 4))
    first, second = history.limit(), history.second_limit()
    assert all(second[feature] <= first[feature] for feature in FEATURES)
    size = 2.0**bits
    seen = Features(size, 9 * size, size / 4)
    above = any(seen[i] > second[feature] * (1 + 1e-12) for i, feature in enumerate(FEATURES))
    verdict = history.update(seen)
    if above:
        assert verdict.level is not Level.NORMAL
    elif "recent largest" in verdict.reason or "deviations above" in verdict.reason:
        assert any(seen[i] >= second[feature] * (1 - 1e-12) for i, feature in enumerate(FEATURES))


@given(st.sampled_from("YBWA"), st.lists(st.floats(0.5, 2.0), min_size=1, max_size=30))
def test_the_second_level_limit_does_not_depend_on_who_asked_for_the_first(kind, sizes):
    asked, silent = History(kind), History(kind)
    for i, size in enumerate(sizes):
        for history in (asked, silent):
            history.update(Features(size * 1.5**i, 9 * size, size / 4))
        asked.limit()
        assert silent.second_limit() == asked.second_limit()


@pytest.mark.parametrize(("value", "level"), [(100.0, "second"), (1e9, "first"), (math.nan, "first")])
def test_what_a_second_run_does_not_show_is_a_first_level_anomaly_that_was_refused(value, level):
    watch = taught(a="W", b="B")
    first = [reading("a", value), reading("b", 1.0, "B")]
    before = watch.state()
    (gone,) = vanished(first, [reading("a", 1.0)], lambda seen: watch.judges.suspicion(seen, 1.0) is not None)
    assert watch.state() == before
    outcome = watch.judge(21, [reading("a", 1.0), reading("b", 1.0, "B")], vanished=[gone])
    (event,) = outcome.events
    assert outcome.fatal is event
    assert (event.checkpoint, event.level, event.kind, event.refused) == ("a", Level.ERROR, "anomaly", True)
    assert event.reason == (
        f"weight gradient: above its {level}-level limit, but not when the same step was made again"
    )
    assert event.value == value or (math.isnan(event.value) and math.isnan(value))
    healthy = taught(a="W", b="B")
    healthy.judge(21, [reading("a", 1.0), reading("b", 1.0, "B")])
    assert watch.state() == healthy.state()  # the first run taught it nothing


def test_a_sample_and_a_value_within_its_limits_are_not_suspicious():
    watch = taught(a="W")
    assert watch.judges.suspicion(reading("a", 1.1), 1.0) is None
    assert watch.judges.suspicion(reading("a", math.inf, SAMPLE), 1.0) is None
    assert watch.judges.suspicion(reading("never seen", 1e30), 1.0) is None

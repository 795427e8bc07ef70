"""Strikes of one device: one a step, three in eight hours, whatever the clocks do."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import Event, Level, StateError
from asd.strikes import LIMIT, WINDOW_SECONDS, StrikeWindow


def event(step=1, time=0.0, run="run1", **changes):
    fields = {
        "run": run, "rank": 0, "host": "node7", "device": "Ascend:3", "step": step, "checkpoint": "a", "value": 2e6,
        "limits": (1e6,), "level": Level.ERROR, "kind": "anomaly", "rule": "threshold", "feature": "l2", "reason": "r",
        "refused": True, "time": time,
    }  # fmt: skip
    return Event(**{**fields, **changes})


def test_the_limits_are_those_of_the_vendor():
    assert (LIMIT, WINDOW_SECONDS) == (3, 8 * 3600)


def test_all_anomalies_of_one_step_are_one_strike():
    window = StrikeWindow()
    added = [window.add(event(step, checkpoint=name)) for step in (1, 2) for name in "abc"]
    assert added == [True, False, False, True, False, False]
    assert window.in_window(0.0) == 2


def test_the_same_step_of_another_run_is_another_strike():
    window = StrikeWindow()
    assert [window.add(event(run=run)) for run in ("one", "two", "one")] == [True, True, False]


def test_anomalies_of_unknown_steps_of_two_runs_do_not_disturb_one_another():
    window = StrikeWindow()
    given = [("a", 0.0), ("b", 1.0), ("a", 2.0), ("b", 3.0), ("a", 400.0)]
    assert [window.add(event(0, time, run=run)) for run, time in given] == [True, True, False, False, True]


@pytest.mark.parametrize(
    "changes",
    [{"level": Level.WARNING}, {"kind": "follower", "level": Level.NORMAL}, {"kind": "problem"}, {"kind": "isolation"}],
)
def test_only_first_level_anomalies_are_strikes(changes):
    window = StrikeWindow()
    assert not window.add(event(**changes))
    assert window.in_window(0.0) == 0


def test_three_strikes_make_a_suspect_until_the_first_has_left_the_window():
    window = StrikeWindow()
    for step, time in enumerate((1000.0, 2000.0, 3000.0), start=1):
        assert not window.suspect(time)
        window.add(event(step, time))
    last = 1000.0 + WINDOW_SECONDS
    assert [window.in_window(now) for now in (3000.0, last - 0.001, last)] == [3, 3, 2]
    assert [window.suspect(now) for now in (3000.0, last - 0.001, last)] == [True, True, False]


def test_limit_and_window_can_be_chosen():
    window = StrikeWindow(limit=2, window_seconds=10.0)
    window.add(event(1, 0.0))
    window.add(event(2, 5.0))
    assert [window.suspect(now) for now in (9.9, 10.0)] == [True, False]


def test_a_clock_that_jumped_back_forgets_no_strike():
    window = StrikeWindow()
    for step, time in enumerate((1_000_000.0, 500_000.0, 500_010.0), start=1):
        window.add(event(step, time))
    assert window.suspect(500_010.0)
    assert window.in_window(500_000.0 + WINDOW_SECONDS) == 2


def test_anomalies_without_a_step_are_one_strike_when_they_are_close():
    window = StrikeWindow()
    times = [0.0, 10.0, 300.0, 301.0, 400.0, 100_000.0]
    assert [window.add(event(0, time)) for time in times] == [True, False, False, True, False, True]
    assert window.in_window(400.0) == 3  # the one that lies ahead counts


def test_a_device_given_back_begins_without_strikes():
    window = StrikeWindow()
    for step, time in enumerate((10.0, 20.0, 30.0), start=1):
        window.add(event(step, time))
    window.clear(25.0)
    assert window.in_window(30.0) == 1
    assert window.add(event(4, 24.0))  # is read late: another log holds it
    assert window.in_window(30.0) == 1


def test_a_repair_with_a_clock_that_went_ahead_hides_no_later_strike():
    window = StrikeWindow()
    window.clear(1e9)
    for step in (1, 2, 3):
        window.add(event(step, 100.0 + step))
    assert window.suspect(110.0)


@given(st.permutations([event(step, float(step), checkpoint=name) for step in range(1, 6) for name in "ab"]))
def test_the_order_in_which_events_are_read_does_not_matter(events):
    window = StrikeWindow()
    assert sum(map(window.add, events)) == 5
    assert window.in_window(5.0) == 5


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1e6), st.sampled_from(["r", "特"])), max_size=20),
    st.floats(0, 1e6),
)
def test_a_restored_window_goes_on_as_if_nothing_had_happened(strikes, now):
    window, other = StrikeWindow(), StrikeWindow()
    for step, time, run in strikes:
        window.add(event(step, time, run))
    other.restore(json.loads(json.dumps(window.state())))
    assert other.in_window(now) == window.in_window(now)
    for step in range(6):
        again = event(step, now, "r")
        assert other.add(again) == window.add(again)
    assert other.state() == window.state()


def test_its_size_is_bounded():
    window = StrikeWindow()
    for step in range(1, 5001):
        window.add(event(step, float(step)))
    assert window.in_window(5000.0) == 1000
    assert len(json.dumps(window.state())) < 50_000


@pytest.mark.parametrize(
    "state", [{}, {"strikes": 3}, {"strikes": [[1]], "unknown_step": 0, "cleared": 0}, {"strikes": {}}, []]
)
def test_a_state_that_is_none_is_an_error_and_changes_nothing(state):
    window = StrikeWindow()
    window.add(event())
    with pytest.raises(StateError, match="a saved strike window can't be used"):
        window.restore(state)
    assert window.in_window(0.0) == 1

"""A change of the training, a fault of one place, and one incident where others would see many."""

import math
from dataclasses import replace

import pytest

from asd import Config, Level
from asd.diagnosis.flow import attribute
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading

PLACES = {"norm": "B", "a": "W", "b": "W", "c": "W", "d": "W"}
"""With their kinds."""


def watched(steps=40):
    monitor = Monitor(Config(enable=1), Origin("run1", 0, "node7", "Ascend:3"))
    for step in range(1, steps + 1):
        assert judged(monitor, step) == []
    return monitor


def judged(monitor, step, factors=1.0, others=None):
    """The events of a step that is so many times as large as a usual one; a number for all places, or some by name."""
    sizes = factors if isinstance(factors, dict) else dict.fromkeys(PLACES, factors)
    usual = 1e-2 * (1 + step % 3)
    readings = [
        Reading(name, usual * (place + 1) * sizes.get(name, 1.0), place, kind)
        for place, (name, kind) in enumerate(PLACES.items())
    ]
    told = monitor.seen(readings)
    step_of_all = {0: told} | {
        rank: {name: each._replace(value=each.value / 16, broken=each.broken and breaks) for name, each in told.items()}
        for rank, breaks in enumerate(others or (), 1)  # replicas with a sixteenth, which may break limits or not
    }
    return monitor.judge(step, readings, attribution=None if others is None else attribute(step_of_all)).events


@pytest.mark.parametrize("to_the_end", [True, False])
@pytest.mark.parametrize("factor", [20.0, 100.0, 2.0**13])
def test_all_places_that_move_by_one_factor_are_a_change_that_ends_nothing(factor, to_the_end):
    monitor = watched()
    for step in range(41, 80):
        events = judged(monitor, step, factor if to_the_end or step < 50 else 1.0)
        assert {(event.level, event.cause) for event in events} <= {(Level.WARNING, "change")}
        assert not events or step < 43
    if to_the_end:  # and the new level is judged
        (event,) = judged(monitor, 80, dict.fromkeys(PLACES, factor) | {"a": factor * 2.0**20})
        assert (event.level, event.checkpoint) == (Level.ERROR, "a")


def test_a_change_that_a_fault_may_be_and_one_without_an_event_leave_the_levels():
    monitor, other = watched(), watched()
    assert {event.level for step in range(41, 50) for event in judged(monitor, step, 2.0**20)} == {Level.ERROR}
    steps = ((41, 2.2), (42, 6.6), (43, {"c": 1e12}))  # the first two above their range, not their margin
    assert [[event.level for event in judged(other, *each)] for each in steps] == [[], [], [Level.ERROR]]


@pytest.mark.parametrize("wrong", [("norm",), ("c",), ("b", "c", "d")])
def test_places_that_move_alone_are_no_change_and_several_steps_in_a_row_are_one_incident(wrong):
    monitor = watched()
    found = [judged(monitor, step, {name: 64.0 if step != 46 else 1.0 for name in wrong}) for step in range(41, 50)]
    levels = [events[0].level.name if events else "" for events in found]
    assert levels == [*["WARNING"] * 2, *["ERROR"] * 3, "", *["WARNING"] * 2, "ERROR"]
    assert {(event.cause, event.device) for events in found for event in events} == {("", "Ascend:3")}
    first = found[2][0]
    ids = [[event.incident for event in found[step]] for step in (2, 3, 4, 8)]
    assert ids == [[each] * len(wrong) for each in ("", first.id, first.id, "")]


def test_one_rank_among_others_waits_for_what_these_say_of_a_change():
    monitor = watched()
    monitor.alone = False
    found = [(judged(monitor, step, 64.0), monitor.moved) for step in (41, 42, 43)]
    assert [moved for _, moved in found] == [False, True, True]
    assert {(event.level, event.cause) for event in found[-1][0]} == {(Level.ERROR, "")}


@pytest.mark.parametrize(
    ("bits", "others", "found"),
    [
        *((bits, None, ("divergence", "unknown", -1)) for bits in (3, 2, 5)),
        *((3, others, ("divergence", "unknown", -1)) for others in ([], [True, True, True])),
        (3, [False, False], ("", "Ascend:3", 0)),  # its replicas would have it too
    ],
)
def test_a_training_that_diverges_is_said_to_and_no_device_is_named_unless_one_rank_alone_does(bits, others, found):
    monitor = watched()
    rate = {name: 2.0 ** (bits + place) for place, name in enumerate(PLACES)}
    told = [judged(monitor, 41 + n, {k: f**n for k, f in rate.items()}, others) for n in range(4)]
    first = [event for events in told for event in events if event.level is Level.ERROR]
    assert {(event.cause, event.device, event.rank) for event in first} == {found}


@pytest.mark.parametrize(("factor", "passes"), [(64.0, True), (80.0, True), (64.0 * 3, False), (math.inf, False)])
def test_a_training_gets_past_the_step_where_an_attempt_before_ended_with_as_much(factor, passes):
    before = watched()
    for step in (41, 42, 43):
        (ended,) = judged(before, step, {"a": 64.0})
    monitor = watched()
    monitor.know({41: {"norm": replace(ended, value=5e6)}, 43: {"a": ended}}, 40)
    assert monitor.judges.limit("norm") == 1e6  # what is set holds
    for step in (41, 42):
        judged(monitor, step, {"a": 64.0})
    (event,) = judged(monitor, 43, {"a": factor})
    assert (event.level, event.cause) == ((Level.WARNING, "change") if passes else (Level.ERROR, ""))
    assert event.incident == (ended.id if passes else "")
    assert [len(judged(monitor, step, {"a": 64.0})) for step in (44, 45, 46)] == [not passes] * 3

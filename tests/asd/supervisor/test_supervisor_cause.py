"""Why an attempt ended, from its events."""

import pytest

from asd.supervisor.cause import evidence, find_cause, find_urgent
from asd.verdict import Level
from tests.support.events import event_maker

DEVICES = [0, 1, 2]


made = event_maker(host="h", device="CPU:0", value=1e9, time=0.0, run="job", checkpoint="norm", reason="test")


def event(rank, step, kind="anomaly", **changes):
    return made(step, rank=rank, kind=kind, **changes)


def follower(rank, step):
    return event(rank, step, "follower", level=Level.NORMAL)


HEALTHY = [follower(0, 3), event(1, 3, level=Level.WARNING), event(1, 3, "problem", level=Level.NORMAL)]
UNKNOWN = [event(-1, 5), event(3, 5), event(3, 5, "replay", verdict="persistent")]


@pytest.mark.parametrize("events", [[], HEALTHY, UNKNOWN])
def test_healthy_events_and_those_of_unknown_ranks_explain_nothing_and_are_not_told(events):
    assert (find_cause(events, DEVICES), told(events)) == (None, [])


def test_an_isolation_is_as_good_as_a_persistent_verdict():
    found = find_urgent([event(2, 5, "isolation")], [4, 5, 6])
    assert (found.kind, found.device) == ("persistent", 6)


def test_a_transient_fault_that_was_skipped_long_ago_does_not_explain_a_later_anomaly():
    events = [event(0, 5), event(0, 5, "replay", verdict="transient"), event(1, 90)]
    found = find_cause(events, DEVICES)
    assert (found.kind, found.device, found.step) == ("suspect", 1, 90)


def test_when_several_ranks_raise_nobody_is_named_or_told():
    events = [event(0, 5, value=2e6), event(2, 5, value=1e12)]
    found = find_cause(events, DEVICES)
    assert (found.kind, found.device) == ("unclear", -1)
    assert found.reason == "ranks 0, 2 broke a limit, and none of them can be named"
    assert told(events) == []


def told(events):
    return [(each.kind, each.rank, each.step) for each in evidence(events, DEVICES)]


def test_of_the_ranks_that_raised_in_a_step_only_the_one_at_fault_is_told():
    named = [event(0, 5), event(1, 5), event(1, 5, "replay", verdict="transient")]
    assert sorted(told(named)) == [("anomaly", 1, 5), ("replay", 1, 5)]
    assert told([event(0, 5), event(1, 6)]) == [("anomaly", 0, 5), ("anomaly", 1, 6)]  # each alone in its step


@pytest.mark.parametrize(
    ("signs", "first"),
    [
        ([], 50),
        ([event(1, 45, level=Level.WARNING)], 45),
        ([event(1, 45, level=Level.WARNING), event(1, 36, level=Level.WARNING)], 36),
        ([event(1, 30, level=Level.WARNING)], 50),  # too long ago to belong to it
        ([event(0, 45, level=Level.WARNING)], 50),  # another device
        ([event(1, 45)], 50),  # refused: nothing is left of it
        ([event(1, 45, refused=False)], 45),
    ],
)
def test_the_first_sign_of_a_fault_may_be_older_than_what_ended_the_training(signs, first):
    assert find_cause([*signs, event(1, 50)], DEVICES).step == first

"""Which devices an attempt gets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.errors import StateError
from asd.event import Event
from asd.supervisor.devices import Devices
from asd.verdict import Level


def anomaly(step, time=0.0, run="job"):
    return Event(
        run=run, rank=0, host="h", device="CPU:0", step=step, checkpoint="norm", value=1.0, limits=(), time=time,
        level=Level.ERROR, kind="anomaly", rule="threshold", feature="l2", reason="", refused=True,
    )  # fmt: skip


def test_the_first_devices_begin_and_the_others_wait():
    assert Devices([0, 1, 2], 2, 2).choose() == [0, 1]
    assert Devices([4, 7], 2, 2).choose() == [4, 7]


@pytest.mark.parametrize(("bad", "expected"), [(0, [2, 1]), (1, [0, 2]), (2, [0, 1])])
def test_a_spare_takes_the_place_of_the_one_that_is_left_out_and_the_others_stay(bad, expected):
    devices = Devices([0, 1, 2], 2, 2)
    devices.leave_out(bad, "broken")
    assert devices.choose([0, 1]) == expected


def test_without_a_spare_it_shrinks_down_to_the_fewest():
    devices = Devices([0, 1, 2], 3, 2)
    devices.leave_out(1, "broken")
    assert devices.choose([0, 1, 2]) == [0, 2]
    devices.leave_out(2, "broken")
    assert devices.choose([0, 2]) == []


def test_a_suspect_is_used_when_there_is_no_other_and_under_another_rank():
    devices = Devices([0, 1, 2], 2, 2)
    devices.suspect(1)
    assert devices.choose([0, 1]) == [0, 2]
    devices.suspect(0)
    assert sorted(devices.choose([0, 2])) == [1, 2]  # the older suspicion is the lesser
    two = Devices([0, 1], 2, 2)
    two.suspect(1)
    assert two.choose([0, 1]) == [1, 0]
    one = Devices([0], 1, 1)
    one.suspect(0)
    assert one.choose([0]) == [0]


def test_what_was_left_out_can_be_given_back():
    devices = Devices([0, 1], 2, 2)
    devices.leave_out(1, "broken")
    devices.leave_out(1, "broken again")
    assert devices.out == {1: "broken"}
    assert devices.give_back(1, 10.0)
    assert not devices.give_back(1, 10.0)
    assert devices.choose([0, 1]) == [0, 1]


def test_strikes_are_counted_per_device_and_step_within_eight_hours():
    devices = Devices([0, 1], 2, 2)
    assert [devices.strike(0, anomaly(step)) for step in (1, 1, 2)] == [1, 1, 2]
    assert devices.strike(1, anomaly(1)) == 1
    assert devices.strike(0, anomaly(9, time=480 * 60 + 1.0)) == 1
    devices.revoke(1, 1.0)
    assert devices.strike(1, anomaly(2, time=2.0)) == 1


def test_the_state_comes_back_as_it_was():
    devices = Devices([0, 1, 2], 2, 2)
    devices.leave_out(0, "broken")
    devices.suspect(1)
    devices.strike(1, anomaly(1))
    other = Devices([0, 1, 2], 2, 2)
    other.restore(json.loads(json.dumps(devices.state())))
    assert other.state() == devices.state()
    assert other.strike(1, anomaly(2)) == 2


@pytest.mark.parametrize("state", [{}, {"out": [], "bench": [], "strikes": {}}, {"out": {"x": ""}, "bench": 3}])
def test_whatever_is_no_state_is_an_error_and_changes_nothing(state):
    devices = Devices([0, 1], 2, 2)
    devices.leave_out(0, "broken")
    with pytest.raises(StateError, match="the saved devices can't be used"):
        devices.restore(state)
    assert devices.out == {0: "broken"}


sets = st.sets(st.integers(0, 7))


@given(st.integers(1, 8), st.integers(1, 8), sets, st.lists(st.integers(0, 7), unique=True), st.permutations(range(8)))
def test_no_device_works_twice_or_is_out_and_none_waits_without_need(ranks, fewest, out, bench, last):
    devices = Devices(range(8), ranks, min(fewest, ranks))
    for device in bench:
        devices.suspect(device)
    for device in out:
        devices.leave_out(device, "broken")
    chosen = devices.choose(last[:ranks])
    usable = set(range(8)) - out
    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= usable
    assert len(chosen) == (min(ranks, len(usable)) if len(usable) >= devices.fewest else 0)
    if set(chosen) & set(bench):
        assert chosen
        assert usable - set(bench) <= set(chosen)  # a suspect works only when everybody else does


@given(st.integers(2, 8), st.integers(0, 7))
def test_those_that_are_not_concerned_keep_their_rank(ranks, bad):
    devices = Devices(range(9), ranks, ranks)
    last = devices.choose()
    devices.leave_out(bad, "broken")
    for before, after in zip(last, devices.choose(last), strict=True):
        assert before in (after, bad)

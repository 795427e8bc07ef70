"""Which devices an attempt gets."""

from hypothesis import given
from hypothesis import strategies as st

from asd.supervisor.devices import Devices


def test_a_suspect_is_used_when_there_is_no_other_and_under_another_rank():
    devices = Devices([0, 1, 2], 2, 2)
    devices.bench.append(1)
    assert devices.choose([0, 1]) == [0, 2]
    devices.bench.append(0)
    assert sorted(devices.choose([0, 2])) == [1, 2]  # the older suspicion is the lesser
    two = Devices([0, 1], 2, 2)
    two.bench.append(1)
    assert two.choose([0, 1]) == [1, 0]
    one = Devices([0], 1, 1)
    one.bench.append(0)
    assert one.choose([0]) == [0]


sets = st.sets(st.integers(0, 7))


@given(st.integers(1, 8), st.integers(1, 8), sets, st.lists(st.integers(0, 7), unique=True), st.permutations(range(8)))
def test_no_device_works_twice_or_is_out_and_none_waits_without_need(ranks, fewest, out, bench, last):
    devices = Devices(range(8), ranks, min(fewest, ranks))
    devices.bench, devices.out = bench, dict.fromkeys(out, "broken")
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
    devices.out[bad] = "broken"
    for before, after in zip(last, devices.choose(last), strict=True):
        assert before in (after, bad)

"""What the events add up to: each counts once, and a million take no more memory than some thousands."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

import asd.exporters.ledger
from asd import Level
from asd.exporters.ledger import Ledger
from tests.support.events import event_maker

event = event_maker(device="Ascend:3")


def filled(*events):
    ledger = Ledger(clock=lambda: 100.0)
    for each in events:
        ledger.add(each)
    return ledger


def test_at_most_1024_ranks_are_kept_and_those_of_the_last_run_go_last():
    ledger = filled(*(event(run="old", rank=rank) for rank in range(10)))
    for rank in range(1020):
        ledger.add(event(run="new", rank=rank))
    assert {key.run for key in ledger.counts()} == {"new"}
    for rank in range(1020, 1030):
        ledger.add(event(run="new", rank=rank))
    assert [key.rank for key in ledger.counts()] == list(range(6, 1030))


KINDS = [{"level": Level.ERROR}, {"level": Level.WARNING, "checkpoint": "b"}]
KINDS += [{"kind": kind} for kind in ("isolation", "recovery")] + [{"kind": "follower", "level": Level.NORMAL}]
KINDS += [{"kind": "replay", "verdict": "persistent"}, {"kind": "replay", "verdict": "software", "checkpoint": "c"}]
ANY_EVENT = st.builds(
    lambda step, rank, kind, run: event(step, rank=rank, run=run, **kind),
    st.integers(0, 5),
    st.integers(-1, 2),
    st.sampled_from(KINDS),
    st.sampled_from(["r", "特\n\udcff"]),
)


@given(st.lists(ANY_EVENT, max_size=30))
def test_what_is_counted_anew_comes_to_the_same(events):
    live, anew = filled(*events), filled(event(7, rank=9))
    anew.recount(events)
    assert (anew.counts(), anew.records(9.0)) == (live.counts(), live.records(9.0))


def test_bad_data_in_the_logs_of_ranks_that_are_counted_one_after_the_other_makes_no_device_suspect():
    logs = [
        [event(step, rank=rank, device=f"Ascend:{rank}", time=10.0 * step) for step in range(200)] for rank in range(3)
    ]
    anew = filled()
    anew.recount([each for turn in (0, 100) for log in logs for each in log[turn : turn + 100]])
    assert [each.strikes for each in anew.records(2000.0).values()] == []


@given(st.lists(ANY_EVENT, max_size=20), st.randoms())
def test_events_count_once_in_whatever_order_they_come(events, random):
    twice = [*events, *events]
    random.shuffle(twice)
    found, once = (
        {key: (tally.anomalies, tally.verdicts, tally.last_anomaly) for key, tally in filled(*each).counts().items()}
        for each in (twice, events)
    )
    assert found == once


def test_threads_may_add_and_read_at_the_same_time():
    ledger = Ledger()

    def add(rank):
        for step in range(1, 151):
            ledger.add(event(step, rank=rank, run=f"run{step % 70}"))
            if step % 10 == 0:
                assert ledger.counts()
                ledger.records(10.0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert sum(tally.anomalies["first"] for tally in ledger.counts().values()) > 0


def test_a_ledger_forgets_strikes_that_are_too_old_and_the_devices_heard_of_first(monkeypatch):
    for name in ("_PRUNE_EVENTS", "_MOST_DEVICES"):
        monkeypatch.setattr(asd.exporters.ledger, name, 250)
    now = [0.0]
    ledger, sizes = Ledger(clock=lambda: now[0]), []
    for number in range(500):
        now[0] = 0.0 if number < 10 else ledger.policy.strike_memory_seconds + 1.0
        ledger.add(event(1, f"host{number}", run=f"run{number}"))
        if number in (248, 249, 499):
            sizes.append(len(ledger.records(1.0)))
    assert sizes == [249, 240, 250]


def test_memory_is_flat_over_many_events_and_one_device_pushes_out_no_other(monkeypatch):
    for name, most in (("IDS", 2000), ("FACTS", 45)):
        monkeypatch.setattr(asd.exporters.ledger, f"_MOST_{name}", most)
    monkeypatch.setattr(asd.exporters.ledger, "_PRUNE_EVENTS", 1000)
    ledger = filled(event(1, "quiet"))

    def add(start, stop, level=Level.ERROR):
        for step in range(start, stop):
            ledger._clock = lambda now=float(step): now
            ledger.add(event(step, rank=step % 8, level=level))

    add(0, 2100)  # every bound has been reached
    pages = ledger._store.db.execute("PRAGMA page_count").fetchone()[0]
    tracemalloc.start()
    add(2100, 4200, Level.WARNING)  # all that Python holds is traced now
    base, _ = tracemalloc.get_traced_memory()
    add(4200, 4600)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used - base < 40_000
    assert ledger._store.db.execute("PRAGMA page_count").fetchone()[0] < 1.1 * pages < 100  # not traced
    assert ("quiet", "Ascend:3") in ledger.records(5000.0)

"""What the detection benchmark counts: intervals of shares, and what it calls worse than it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._wilson import per_million, wilson
from benchmarks.held_out.__main__ import regressions, summary


@pytest.mark.parametrize(
    ("found", "of", "low", "high"),
    [(41, 41, 0.9143, 1.0), (27, 27, 0.8754, 1.0), (4, 645, 0.0024, 0.0158), (0, 149, 0.0, 0.0251)],
)
def test_the_wilson_interval_has_its_published_values(found, of, low, high):
    assert wilson(found, of) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10_000), st.data())
def test_the_interval_holds_the_proportion_and_mirrors(of, data):
    found = data.draw(st.integers(0, of))
    low, high = wilson(found, of)
    assert 0 <= low <= found / of <= high <= 1
    assert wilson(of - found, of) == pytest.approx((1 - high, 1 - low))


def test_no_alarm_in_three_million_checks_means_at_most_one_in_a_million():
    assert per_million(0, 3_000_000) == (0.0, 1.0)


def row(*, lasting, found, early=False):
    hit = dict.fromkeys(("own", "in_20", "before_second", "while"), found)
    return {"harmful": True, "lasting": lasting, "early": early, **hit}


def test_what_got_worse_is_named_and_what_so_few_faults_cannot_tell_is_not():
    clean = [{"cell": "mixer-graph-float32", "faults": 40, "alarms": 0, "checks": 2000, "equal": True}]
    good = [row(lasting=lasting, found=True) for lasting in (True, False) for _ in range(12)]
    before = summary(good, clean)
    assert regressions(before, clean, before) == []
    worse = [row(lasting=True, found=True), *good[:2], row(lasting=False, found=False)]
    assert regressions(summary(worse, clean), clean, before) == []
    bad = [row(lasting=lasting, found=False, early=not lasting) for lasting in (True, False) for _ in range(12)]
    clean[0] |= {"alarms": 2, "equal": False}
    assert regressions(summary(bad, clean), clean)[0] == "14 first-level alarms without a fault; valid is none."
    assert regressions(summary(bad, clean), clean, before) == [
        "0 of 12 harmful single faults in their own step are found; valid is 76%.",
        "0 of 12 harmful lasting faults are found; valid is 76%.",
        "14 first-level alarms without a fault; valid is none.",
        "the losses of mixer-graph-float32 are others with detection.",
    ]

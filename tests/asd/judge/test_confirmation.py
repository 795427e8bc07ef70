"""How often a second look is taken, and what it says."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import Config, Level
from asd.judge.confirmation import BURST, LOOKS, Allowance, vanished
from asd.judge.detectors import Detectors
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules import Adaptive
from asd.rules.reading import Reading


def reading(name, value, kind="W"):
    return Reading(name, value, kind=kind)


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
    values = {"gone": (9.0, 1.0), "stays": (9.0, 9.0), "fine": (1.0, 4.0), "nearly": (6.0, 5.0), "low": (0.1, 1.0)}
    values |= {"missing": (9.0, 1.0), "rounding": (1e-5, 5e-3), "no rounding": (1e-5, 0.02), "last": (9.0, 1.0)}
    watch = taught(**dict.fromkeys(values, "B"))
    watch.judge(21, [reading(name, 0.01, "B") for name in ("rounding", "no rounding")])
    first, again = ([reading(name, value[i], "B") for name, value in values.items()] for i in range(2))
    then = [each for each in again if each.checkpoint != "missing"]
    found = vanished(first, then, watch.judges, 1.0)
    assert [seen.checkpoint for seen in found] == ["gone", "low", "no rounding", "last"]
    first[-1] = first[-1]._replace(order=-1)  # seen before all others
    assert vanished(first, then, watch.judges, 1.0)[0].checkpoint == "last"


@given(st.sampled_from("BWA"), st.lists(st.floats(0.5, 2.0), min_size=4, max_size=30), st.floats(-3, 16))
def test_above_the_second_level_limit_is_where_a_gradient_begins_to_be_a_warning(kind, sizes, bits):
    rule = Adaptive(kind=kind)
    for size in sizes:
        rule.update(size)
    first, second, size = rule.limit(), rule.second_limit(), 2.0**bits
    verdict = rule.update(size)
    assert second <= first
    assert (verdict.level is Level.NORMAL or "recent smallest" in verdict.reason) is (size <= second)


@pytest.mark.parametrize("value", [100.0, 1e9, math.nan])
def test_what_a_second_run_does_not_show_is_a_first_level_anomaly_that_was_healed(value):
    watch = taught(a="W", b="B")
    first = [reading("a", value), reading("b", 1.0, "B")]
    before = watch.state()
    assert watch.judges.suspicion(reading("a", 1.1), 1.0) is watch.judges.suspicion(reading("new", 1e30), 1.0) is None
    (gone,) = vanished(first, [reading("a", 1.0)], watch.judges, 1.0)
    assert watch.state() == before
    outcome = watch.judge(21, [reading("a", 1.0), reading("b", 1.0, "B")], vanished=[gone])
    (event,) = outcome.events
    assert (outcome.fatal, watch.status.healed) == (event, 1)
    assert (event.checkpoint, event.level, event.refused, event.healed) == ("a", Level.ERROR, False, True)
    assert event.value == value or (math.isnan(event.value) and math.isnan(value))
    healthy = taught(a="W", b="B")
    healthy.judge(21, [reading("a", 1.0), reading("b", 1.0, "B")])
    assert watch.judges.state() == healthy.judges.state()  # the first run taught it nothing


@pytest.mark.parametrize(("ranks", "steps"), [(1, 2000), (16, 400)])
def test_looks_spend_their_part_of_the_share_of_a_job_and_are_rarer_by_chance_the_more_ranks_there_are(ranks, steps):
    random, share, made = Random(3), Allowance(0.01), 0
    job = [Detectors(Config(protection="document", enable=1, rule="adaptive")) for _ in range(ranks)]
    for _ in range(steps):
        may, suspicious = share.next_step(), False
        for judges in job:
            judges.look(share.for_looks, ranks, share.moved)
            for name in "abcdefgh":
                value = reading(name, 2.0 ** random.gauss(0, 0.3))
                suspicious |= judges.suspicion(value, 1.0) is not None
                judges.update(name, "W", value.value)
            judges.end_step()
        if may and suspicious:
            share.spend()
            made += 1
    assert 0.5 * 0.007 * steps <= made <= LOOKS + 0.007 * steps
    margin = judges._margins["W"]
    looks = [*(judges.look(0.01, many, 0.0) or margin.look for many in (2, 64, 1000)), margin.bits]
    assert looks == sorted(set(looks))

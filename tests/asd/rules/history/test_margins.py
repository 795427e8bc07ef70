"""Margins that are fitted to the largest distances of healthy values."""

from math import log, sqrt
from random import Random

import pytest

from asd.errors import StateError
from asd.rules.history import Margins
from asd.rules.history.margins import Tail, exceeded_by
from asd.rules.readings.kinds import kind_of


def fitted(distances):
    """The margin as the documentation of `Tail` has it."""
    n = len(distances)
    k = min(max(n // 8, 8), 64)
    largest = sorted(distances)[-k:]
    beta = sum(largest) / k - largest[0]
    return largest[0] + beta * (1 + 2 / sqrt(k)) * log(k / (n * 1e-5))


def test_the_margin_is_the_documented_one_from_the_sixteenth_step_on():
    tail, random, seen = Tail(0.01, 4.0, 1000.0), Random(1), []
    for n in range(1, 801):
        seen.append(random.expovariate(1.0))
        tail.pending = seen[-1]
        tail.refit()
        assert tail.margin == (4.0 if n < 16 else pytest.approx(fitted(seen)))
    assert tail.state()["largest"] == sorted(seen)[-64:]
    assert tail.state()["count"] == 800


def test_without_a_factor_the_mean_excess_counts_as_it_is():
    assert exceeded_by([1.0, 3.0], 100, 0.001) == pytest.approx(1.0 + log(2 / 0.1))


def test_a_gradient_starts_at_twice_its_deviations_and_ends_at_four_times():
    tails = Margins(kind_of("B"))
    assert tails.margins == pytest.approx((4.0, 4.0, 4.0, 24.4))
    assert tails.version == 0
    for number in range(1, 21):
        tails.add([1.0, 1.0, 1.0, 1e6 * number])
        tails.refit()
    assert tails.margins == pytest.approx((2.5, 2.5, 2.5, 48.8))


def test_the_version_counts_the_steps_that_changed_a_margin():
    tails, random, changes = Margins(kind_of("B")), Random(3), 0
    for _ in range(60):
        before = tails.margins
        tails.add([random.expovariate(1.0) for _ in range(4)])
        tails.refit()
        changes += tails.margins != before
        assert tails.version == changes
    assert changes > 2


def taught():
    tails, random = Margins(kind_of("B")), Random(4)
    for _ in range(60):
        tails.add([random.expovariate(1.0) for _ in range(4)])
        tails.refit()
    return tails


def test_restored_margins_are_in_force_at_once_and_count_as_a_change():
    tails = Margins(kind_of("B"))
    tails.restore(taught().state())
    assert tails.margins == taught().margins != Margins(kind_of("B")).margins
    assert tails.version == 1


def test_margins_that_can_not_be_restored_are_all_as_they_were():
    tails, state = Margins(kind_of("B")), taught().state()
    state[-1]["count"] = -1
    before = tails.state()
    with pytest.raises(StateError):
        tails.restore(state)
    assert tails.state() == before


def test_of_each_step_the_largest_distance_counts_and_no_margin_is_above_ten():
    many, largest = Margins(kind_of("B")), Margins(kind_of("B"))
    for step in range(60):
        for share in (0.1, 0.3, 0.2):
            many.add([share * step])
        largest.add([0.3 * step])
        many.refit()
        largest.refit()
    assert many.state() == largest.state()
    assert many.envelope[0].margin == 10.0

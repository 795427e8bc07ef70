"""Margins that are fitted to the largest distances of healthy values."""

import json
from math import inf, log, sqrt
from random import Random

import pytest

from asd.errors import StateError
from asd.rules.kinds import KINDS, kind_of
from asd.rules.margins import Margin


def fitted(distances):
    """The margin as the documentation of `Margin` has it."""
    n = len(distances)
    k = min(max(n // 8, 8), 64)
    *rest, largest = sorted(distances)[-k:]
    beta = sum(rest) / (k - 1) - rest[0]
    return max(largest + 0.5, rest[0] + beta * (1 + 2 / sqrt(k)) * log((k - 1) / (n * 1e-5)))


def taught(steps=60):
    margin, random = Margin(kind_of("B")), Random(4)
    for _ in range(steps):
        margin.add(random.expovariate(4.0))
        margin.refit()
    return margin


def test_the_margin_is_the_documented_one_from_the_sixteenth_step_on():
    margin, random, seen = Margin(kind_of("B")._replace(envelope=0.01)), Random(1), []
    for n in range(1, 801):
        seen.append(random.expovariate(2.0))
        margin.add(seen[-1])
        margin.refit()
        assert margin.bits == (4.0 if n < 16 else pytest.approx(min(fitted(seen), 10.0)))
    assert margin.bits < 10.0
    assert (margin.state()["largest"], margin.state()["count"]) == (sorted(seen)[-64:], 800)


@pytest.mark.parametrize("kind", KINDS)
def test_no_margin_is_below_that_of_its_kind_or_above_ten(kind):
    for distance, bits in ((0.1, kind_of(kind).envelope), (30.0, 10.0)):
        margin = Margin(kind_of(kind))
        assert margin.bits == 4.0
        for _ in range(16):
            margin.add(distance)
            margin.refit()
        assert margin.bits == bits


def test_of_each_step_the_largest_distance_counts_and_a_step_without_one_does_not():
    many, largest = Margin(kind_of("B")), Margin(kind_of("B"))
    for step in range(40):
        for share in (0.1, 0.3, -inf, 0.2):
            many.add(share * step if share > 0 else share)
        many.refit()
        many.add(-inf)
        many.refit()
        largest.add(0.3 * step)
        largest.refit()
    assert many.state() == largest.state()
    assert many.state()["count"] == 40


def test_the_margin_in_force_changes_at_the_end_of_a_step_and_by_one_batch_to_that_batch_only():
    margin = taught()
    before = margin.bits
    margin.add(5.7)
    assert margin.bits == before
    margin.refit()
    assert (before < 5.0, margin.bits) == (True, 6.2)  # one unusual batch blinds nobody


@pytest.mark.parametrize("steps", [0, 5, 60, 100])
def test_a_restored_margin_is_in_force_at_once_and_goes_on_as_if_it_had_never_stopped(steps):
    one, other, random = taught(steps), Margin(kind_of("B")), Random(5)
    other.restore(json.loads(json.dumps(one.state(), allow_nan=False)))
    assert (other.bits, other.state()) == (one.bits, one.state())
    other.restore({**one.state(), "largest": one.state()["largest"][::-1]})  # in whatever order
    assert other.state() == one.state()
    for _ in range(30):
        distance = random.expovariate(1.0)
        for margin in (one, other):
            margin.add(distance)
            margin.refit()
        assert other.bits == one.bits
    assert other.state() == one.state()


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("count", -1), ("count", 3), ("largest", [1.0]), *[("margin", bits) for bits in (2.49, 10.1, None)]],
)
def test_a_margin_that_can_not_have_been_saved_is_refused_and_changes_nothing(key, wrong):
    margin = Margin(kind_of("B"))
    before, state = margin.state(), taught().state()
    with pytest.raises(StateError):
        margin.restore({**state, key: wrong})
    assert margin.state() == before

"""Attribution: the rank at fault is named, and nobody when that can't be told."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.diagnosis.attribution import Seen, pack_seen, unpack_seen
from asd.diagnosis.flow import attribute, whose_fault

CHECKPOINTS = ("norm_out", "layers.1", "layers.0", "embedding")  # as the backward pass meets them
LIMIT = 1e6


def rank(*values):
    return {
        name: Seen(order, value, not value <= LIMIT)
        for order, (name, value) in enumerate(zip(CHECKPOINTS, values, strict=True))
    }


HEALTHY = rank(1.0, 2.0, 3.0, 4.0)
LOUD, NEAR, DRAGGED = rank(*[1e9] * 4), rank(*[9e5] * 4), rank(1.0, 2.0, 5e6, 5e6)
LATE, STRUCK = rank(1.0, 2.0, 1e9, 1e9), rank(1.0, 1e9, 1e9, 1e9)
ONE_ALONE = [dict.fromkeys(range(ranks), HEALTHY) | {1: rank(1.0, 1e9, 1e8, 1e7)} for ranks in (2, 3, 4, 8)]


@pytest.mark.parametrize(
    ("step", "found"),
    [
        *((step, (1, "layers.1", ())) for step in ONE_ALONE),
        ({0: DRAGGED, 1: DRAGGED, 2: STRUCK, 3: HEALTHY}, (2, "layers.1", (0, 1))),
        ({0: HEALTHY, 1: HEALTHY}, (None, "", ())),
        # The one that broke first, however loud another one is.
        ({0: rank(1.0, 2.0, 1e30, 1e30), 1: HEALTHY, 2: HEALTHY, 3: rank(1.0, 1e8, 2.0, 3.0)}, (3, "layers.1", (0,))),
        # No healthy one inherits the fault of another.
        ({0: rank(*[1e12] * 4), 1: rank(1.1e6, 1e6, 1e6, 1e6), 2: HEALTHY}, (0, "norm_out", (1,))),
        ({0: LATE, 1: LOUD}, (None, "", (0, 1))),  # of two
        ({0: LOUD, 1: HEALTHY, 2: HEALTHY, 3: LOUD, 4: HEALTHY}, (None, "", (0, 3))),  # which are alike
        ({0: LOUD, 1: HEALTHY, 2: HEALTHY, 3: rank(*[3e8] * 4), 4: HEALTHY}, (0, "norm_out", (3,))),
        ({0: NEAR, 1: rank(1.1e6, 9e5, 9e5, 9e5), 2: NEAR}, (None, "", (1,))),  # barely broken, and the others near it
        # Of a checkpoint that no other rank has, where there is no other rank alone.
        ({0: STRUCK}, (0, "layers.1", ())),
        ({0: STRUCK, 1: {"stage1": Seen(0, 1.0, False)}}, (None, "", (0,))),
    ],
)
def test_the_rank_that_stands_out_is_named_with_its_first_checkpoint_and_its_followers_or_nobody(step, found):
    assert attribute(step)[:3] == found


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_value_that_is_not_finite_stands_out_from_finite_ones(value):
    found = attribute({0: HEALTHY, 1: HEALTHY, 2: rank(value, value, value, value)})
    assert (found.origin, found.checkpoint) == (2, "norm_out")


@pytest.mark.parametrize("values", [(2e6, 3e6, 2.5e6, 4e6), (math.inf,) * 4, (math.nan, math.inf, math.nan, math.nan)])
def test_when_all_ranks_rise_together_it_is_the_data_or_the_software(values):
    found = attribute({i: rank(value, value, value, value) for i, value in enumerate(values)})
    assert (found.origin, found.followers) == (None, (0, 1, 2, 3))


VALUES = st.one_of(st.floats(0, 1e38), st.sampled_from([math.inf, math.nan, 0.0, 1e-45]))
STEPS = st.dictionaries(st.integers(0, 50), st.tuples(*[VALUES] * 4).map(lambda values: rank(*values)), min_size=1)


@given(STEPS)
def test_only_a_rank_that_broke_a_limit_is_ever_named_and_the_order_of_the_ranks_does_not_matter(step):
    found = attribute(step)
    broken = {each for each, values in step.items() if any(seen.broken for seen in values.values())}
    named = set(found.followers) | ({found.origin} - {None})
    assert named == broken
    assert found.origin is None or step[found.origin][found.checkpoint].broken
    assert attribute(dict(reversed(step.items()))) == found


def test_at_least_199_of_200_random_faults_over_four_ranks_are_attributed_right():
    random = np.random.default_rng(7)
    right = 0
    for _ in range(200):
        values = np.exp(random.normal(0, 0.5, (4, 4)))
        culprit, first = random.integers(4), random.integers(4)
        values[culprit, first:] *= 10 ** random.uniform(6.5, 30)
        right += attribute({i: rank(*row) for i, row in enumerate(values)}).origin == culprit
    assert right >= 199


def by_the_book(step):
    """Per rank that broke a limit, its distance as its definition says it, one rank at a time."""
    found = {}
    for each, seen in step.items():
        broken = sorted((one.order, name) for name, one in seen.items() if one.broken)
        if broken:
            name = broken[0][1]
            values = [one[name].value for other, one in step.items() if other != each and name in one]
            bits = sorted(math.log2(value) if math.isfinite(value) else math.inf for value in values)
            own = math.log2(seen[name].value) if math.isfinite(seen[name].value) else math.inf
            if bits:
                median = bits[(len(bits) - 1) // 2]
                found[each] = 0.0 if own == median else own - median
    return found


@given(
    st.lists(st.lists(st.sampled_from([1.0, 2.0, 4.0, 2e6, 2e7, 2e9, math.inf]), min_size=4, max_size=4), max_size=9)
)
def test_only_who_stands_out_from_the_median_of_the_others_is_the_origin(rows):
    step = {number: rank(*row) for number, row in enumerate(rows)}
    found = attribute(step)
    distances = by_the_book(step)
    if found.origin is not None and len(step) > 1:
        assert distances[found.origin] >= 3.3
    if len(step) > 2 and found.ranks and found.origin is None:
        assert "alike" in found.reason or max(distances.values()) < 3.3


SEEN = st.builds(Seen, st.integers(0, 1 << 20), st.floats(min_value=0.0, allow_infinity=True), st.booleans())


@given(st.dictionaries(st.text(max_size=20), SEEN, max_size=20))
def test_what_a_rank_tells_the_others_arrives_exactly(seen):
    arrived = unpack_seen(pack_seen(seen))
    assert dict(arrived) == seen
    assert list(arrived) == list(seen)


def test_what_is_not_finite_arrives_too():
    ((name, arrived),) = unpack_seen(pack_seen({"a": Seen(3, math.nan, True)})).items()
    assert (name, arrived.order, arrived.broken) == ("a", 3, True)
    assert math.isnan(arrived.value)
    assert dict(unpack_seen(pack_seen({}))) == {}


@pytest.mark.parametrize(
    ("bad", "origin", "ranks"), [((), None, ()), ((1,), 1, (1,)), ((0, 2), None, (0, 2)), ((0, 1, 2), None, ())]
)
def test_a_mean_that_is_bad_on_some_ranks_alone_tells_of_these_where_no_rank_has_a_fault_of_its_own(bad, origin, ranks):
    means = {each: rank(1.0, 2.0, 1e30 if each in bad else 3.0, 4.0) for each in range(3)}
    found = whose_fault(dict.fromkeys(range(3), HEALTHY), lambda: means)
    assert (found.origin, found.ranks, found.shared) == (origin, ranks, bool(bad) and len(bad) < 3)
    own = dict.fromkeys(range(3), HEALTHY) | {2: rank(1.0, 1e30, 1e30, 1e30)}
    assert whose_fault(own, lambda: means).origin == 2

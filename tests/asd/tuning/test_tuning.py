"""Thresholds from recorded values: they keep to the budget, and grow when it shrinks."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asd.config import Config
from asd.exporters.run_files.values import ValueRecorder
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.margins import KEPT
from asd.rules.reading import Reading
from asd.rundir.recording import RecordedStep, Recording
from asd.tuning.proposal import HIGHEST, HIGHEST_SECOND, JUMP, NORM, propose, replay, tests_of, threshold

# pytest must not take the function for a test.
tests_of.__test__ = False


def stream(seed, steps, checkpoints=4, spread=1.0, level=50.0, heavy=0.0):
    """Steps of one rank whose norms scatter by factors; some rise far above with a probability of `heavy`."""
    draw = random.Random(seed)
    made = []
    for step in range(1, steps + 1):
        values = []
        for i in range(checkpoints):
            norm = level * 2 ** (spread * draw.gauss(0, 1) + i)
            if draw.random() < heavy:
                norm *= 2 ** draw.expovariate(0.3)
            values.append((f"c{i}", "B", norm))
        made.append(RecordedStep(0, step, "", values))
    return made


def test_an_exponential_tail_is_extrapolated_to_where_it_is():
    draw = random.Random(5)
    exact = math.log(1 / 1e-7) + 3  # in bits
    excess = []
    for _ in range(200):
        scores = sorted(2 ** (draw.expovariate(1.0) + 3) for _ in range(1000))[-KEPT:]
        excess.append(math.log2(threshold(scores, 1000, 1e-7)) - exact)
    assert 0.91 * 200 <= sum(bits > 0 for bits in excess) < 200  # the upper bound holds in 95 of 100 cases
    assert sorted(excess)[100] < 0.3 * exact
    assert threshold(scores, 1000, 0.01) == math.ceil(scores[-1])  # never below what was seen
    assert threshold(scores[:63], 10_000, 1e-7) is None
    assert threshold([1e300] * KEPT, 10_000, 1e-7) == HIGHEST


def test_values_that_the_thresholds_of_the_run_flag_get_thresholds_that_do_not():
    steps = stream(1, 400)
    config = Config(protection="document", upper=(1000, 400))
    found = propose(lambda: iter(steps), config)
    norms = [norm for step in steps for *_, norm in step.values]
    assert found.today.first == sum(norm > 1000 for norm in norms) > 10
    assert (found.proposed.first, found.proposed.second) == (0, 0)
    assert found.pairs["upper"][1] > max(norms)
    scores = found.proposed.scores
    assert scores[NORM].extreme[0] == max(norms)
    assert scores[JUMP].counts == {0: 4 * 300}
    assert found.pairs["upper"][1] == threshold(scores[NORM].largest[0], 4 * 400, 1e-4 / 2)  # two tests share


def test_ranks_with_the_same_values_get_the_thresholds_of_one_and_none_below_a_value_of_any():
    config, steps = Config(protection="document"), stream(1, 300)
    ranks = [step._replace(rank=rank) for step in steps for rank in range(4)]
    more = [*ranks, RecordedStep(4, 1, "", [("c0", "B", 1e9)])]
    alone, same, any_rank = (propose(lambda each=each: iter(each), config).pairs for each in (steps, ranks, more))
    assert alone == same
    assert any_rank["upper"][1] == 10**9 > alone["upper"][0]


@example(seed=18, heavy=0.1, rule="silent_check_v3", first=0.0078125, second=0.0078125)
@given(
    seed=st.integers(0, 10**6),
    heavy=st.sampled_from([0.0, 0.01, 0.1]),
    rule=st.sampled_from(["threshold", "silent_check_v3", "adaptive"]),
    first=st.floats(1e-7, 1e-2),
    second=st.floats(1e-3, 1e-2),
)
def test_proposals_raise_nothing_that_was_seen_and_grow_when_the_budget_shrinks(seed, heavy, rule, first, second):
    steps = stream(seed, 260, heavy=heavy)
    config, first = Config(protection="document", rule=rule), min(first, second)
    found = propose(lambda: iter(steps), config, first, second)
    # The rule adaptive has margins of its own, and no setting admits more than the highest.
    if rule != "adaptive" and found.pairs["upper"][1] < HIGHEST_SECOND:
        assert (found.proposed.first, found.proposed.second) == (0, 0)
    again = replay(steps, replace(config, **found.pairs))
    assert (again.first, again.second) == (found.proposed.first, found.proposed.second)
    smaller = propose(lambda: iter(steps), config, first / 10, second)
    assert all(smaller.pairs[setting] >= pair for setting, pair in found.pairs.items())


def test_flagged_steps_are_left_out_and_counted():
    steps = stream(2, 300)
    steps[250] = steps[250]._replace(left_out="second", values=[("c0", "B", 1e9)])
    found = propose(lambda: iter(steps), Config(protection="document"))
    assert (dict(found.today.left_out), found.today.steps) == ({"second": 1}, 299)
    assert found.pairs["upper"][0] < 1e9


@pytest.mark.parametrize("options", [{"upper": (1500, 600)}, {"rule": "adaptive"}])
def test_with_the_thresholds_of_the_run_it_raises_what_the_run_has_raised(tmp_path, options):
    config = Config(protection="document", enable=1, run_dir=str(tmp_path), **options)
    origin = Origin("job", 0, "host", "Ascend:0")
    monitor = Monitor(config, origin, [ValueRecorder(config, origin)])
    monitor.begin()
    for step in stream(6, 300, heavy=0.01):  # with a change after half of them
        monitor.judge(step.step, [Reading(name, 64.0 ** (step.step > 150) * norm) for name, _, norm in step.values])
    monitor.end()
    recording = Recording(tmp_path)
    again = replay((step._replace(left_out="") for step in recording.steps()), recording.settings)
    assert {"first": again.first, "second": again.second} == monitor.status.anomalies
    assert again.first + again.second >= 5
    healthy = replay(recording.steps(), recording.settings)
    assert (healthy.first, healthy.second, healthy.steps + sum(healthy.left_out.values())) == (0, 0, 300)


def test_too_few_values_give_no_proposal():
    steps = stream(3, 120)
    found = propose(lambda: iter(steps), Config(protection="document"))
    assert found.pairs == {}

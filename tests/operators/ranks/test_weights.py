"""The hash of a weight, and when ranks compare theirs."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from mindspore import nn

from asd.operators.gate.part import StepRecord
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import WeightComparison, hash_of, total_of
from asd.operators.step.weight_watch import WeightWatch
from asd.rules.diagnosis.groups import everybody
from asd.rundir.manifest import Health

ARRAYS = arrays(st.sampled_from([np.float16, np.float32, np.float64, np.int8]), array_shapes(max_dims=3, max_side=9))


@given(ARRAYS, st.data())
def test_any_flipped_bit_changes_the_hash_and_the_same_bits_have_the_same(array, data):
    before = hash_of(array)
    assert hash_of(array.copy()) == before
    flipped = array.copy()
    place = data.draw(st.integers(0, array.nbytes - 1))
    flipped.reshape(-1).view(np.uint8)[place] ^= 1 << data.draw(st.integers(0, 7))
    assert hash_of(flipped) != before


def test_places_count():
    one = np.arange(100, dtype=np.float32)
    other = one.copy()
    other[[3, 70]] = other[[70, 3]]
    assert hash_of(one) != hash_of(other)
    assert total_of([1, 2]) != total_of([2, 1])


@given(arrays(np.uint8, st.integers(0, 50)))
def test_it_is_the_sum_that_is_written_down(data):
    words = np.frombuffer(data.tobytes() + bytes(-data.size % 4), "<u4").tolist()
    assert hash_of(data) == sum(word * (2 * i + 1) for i, word in enumerate(words)) % 2**64


def test_a_large_weight_has_the_sum_over_all_its_blocks():
    words = np.arange(2**20 + 5, dtype=np.uint32)
    assert hash_of(words) == sum(i * (2 * i + 1) for i in range(words.size)) % 2**64


def test_one_rank_alone_compares_nothing():
    alone = WeightComparison(nn.Dense(2, 2).trainable_params(), Exchange(), 50)
    assert not alone.active
    assert alone.after(50) is None


class Both:
    """Two ranks that hold the same; the other one tells what this one tells, but for `changes`: by number."""

    def __init__(self):
        self.rank, self.size, self.groups, self.changes, self.lost = 0, 2, everybody(2, 0, ""), {}, None

    def gather(self, message, size):
        numbers = np.frombuffer(message, "<u8").copy()
        for number, change in self.changes.items():
            numbers[number] += np.uint64(change)
        return [message, numbers.tobytes()]


@pytest.mark.parametrize(
    ("seconds", "step_seconds", "wish"),
    [(0.009, 1e-6, 1), (0.5, 10.0, 1), (0.8, 10.0, 1), (0.81, 10.0, 2), (4.0, 1.0, 50), (4.0, 1e-3, 64), (4.0, 0.0, 1)],
)
def test_a_comparison_takes_half_a_percent_of_the_time_at_most_or_a_few_milliseconds(seconds, step_seconds, wish):
    comparison = WeightComparison(nn.Dense(2, 2).trainable_params(), Both(), 16)
    comparison._seconds = seconds
    assert comparison.wish(step_seconds) == wish


class Watched:
    """A `WeightWatch` on one of two ranks, and what became of each of its steps."""

    def __init__(self, ranks=None, every=16, seconds=0.0):
        self.ranks, self.problems, self.exchanges = ranks or Both(), [], []
        status = SimpleNamespace(step_seconds=seconds, check_seconds=0.0, protections=None)
        self.monitor = SimpleNamespace(
            status=status, problem=self.problems.append, protections=SimpleNamespace(has=self.has, to_json=dict)
        )
        self.watch, self.words, gather = WeightWatch(Health()), [], self.ranks.gather
        self.ranks.gather = lambda *words: self.exchanges.append(self.step) or gather(*words)
        self.watch.serve(self.monitor, None, SimpleNamespace(), self.ranks)
        self.watch.watch(nn.Dense(2, 2).trainable_params(), every)

    def has(self, weight_comparison):
        self.words.append(weight_comparison)

    def steps(self, *numbers):
        for self.step in numbers:
            self.watch.compare(StepRecord(self.step, None, 1.0, refused=False))
            self.monitor.status.step_seconds += 2.0
        return self


def test_a_step_that_is_made_again_after_a_roll_back_is_not_known_to_be_alike():
    watched = Watched().steps(*range(1, 34))
    assert watched.watch._comparison.alike == 32
    assert watched.steps(20).watch._comparison.alike == 19


def test_what_a_step_takes_is_known_of_a_training_that_is_resumed_at_a_late_step():
    watched, told = Watched(seconds=500.0), []
    watched.watch._comparison.wish = lambda seconds: told.append(seconds) or 1
    watched.steps(100_001, 100_002, 100_003)
    assert told == [0.0, 2.0, 2.0]

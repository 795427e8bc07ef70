"""The hash of a weight, and what a gate tells all ranks besides."""

from itertools import pairwise
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from asd.operators.table.message import WIDTH, HashComparison, answer_of, message_of
from checked_nets import Decoder, assert_same_bits, fill, ids, targets, values
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from mindspore import nn

from asd import Config
from asd.operators import StepMonitor
from asd.operators.gate import gate_cell
from asd.operators.gate.part import StepRecord
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import WeightComparison, hash_of, total_of
from asd.operators.step.weight_watch import WeightWatch
from asd.operators.table import slots
from asd.rules.diagnosis.groups import Groups, Shard, everybody
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
    assert alone.after(50, now=True) is None


def test_an_announcement_goes_with_the_next_update_once_and_refuses_nothing(mode):
    net = fill(Decoder())
    optimizer = nn.SGD(net.trainable_params(), 1e-2)
    monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly="skip", upper=(1000, 100)), sinks=[])
    monitor.attach(net, optimizer)
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    table, gate = slots.table(), monitor._training.judging.gate
    counts, refused = [], []
    for i in range(1, 7):
        if i in (2, 4):
            table.announce(gate)
        before = values(net.get_parameters())
        bad = i in (4, 5)
        monitor.step(step(ids(i), targets(i) * 1e6 if bad else targets(i)))
        counts.append(table.announced(gate))
        refused.append(table.refused(gate))
        if bad:
            assert_same_bits(before, values(net.get_parameters()))
    assert [after > before for before, after in pairwise(counts)] == [True, False, True, False, False]
    assert [count - refused[0] for count in refused] == [0, 0, 0, 1, 2, 2]
    monitor.close()
    ms.set_context(mode=ms.PYNATIVE_MODE)


def test_a_hash_goes_with_the_next_update_once_and_refuses_nothing(mode, monkeypatch):
    monkeypatch.setattr(gate_cell, "_width", lambda: WIDTH)
    net = fill(Decoder())
    optimizer = nn.SGD(net.trainable_params(), 1e-2)
    monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly="skip", upper=(1000, 100)), sinks=[])
    monitor.attach(net, optimizer)
    optimizer.asd_gate.sum_over_ranks = _with_another(message_of(2**63 + 5, 3))
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    table, gate = slots.table(), monitor._training.judging.gate
    assert gate.carries
    told, answers, refused = {2: 2**63 + 5, 4: 2**62 + 5, 5: 2**63 + 5}, {}, []
    for i in range(1, 7):
        if i in told:
            table.tell(message_of(told[i], 1), gate)
        if i == 6:
            table.announce(gate)
        monitor.step(step(ids(i), targets(i) * 1e6 if i == 5 else targets(i)))
        sums = table.heard(gate)
        assert table.heard(gate) is None
        if i in told:
            answers[i] = answer_of(sums, 2)
        elif sums is not None:
            assert_same_bits({"told": sums[1:]}, {"told": message_of(2**63 + 5, 3)[1:]})
        refused.append(table.refused(gate))
    assert answers == {2: HashComparison(True, 2.0), 4: HashComparison(False, 2.0), 5: HashComparison(True, 2.0)}
    assert [count - refused[0] for count in refused] == [0, 0, 0, 0, 1, 1]
    monitor.close()
    ms.set_context(mode=ms.PYNATIVE_MODE)


def _with_another(message):
    """A sum over this rank and one that tells `message` in every step."""
    other = ms.Tensor(message)

    def total(own):
        return own + other

    return total


class Both:
    """Two ranks that hold the same; the other one tells what this one tells, but for `changes`: by number."""

    def __init__(self):
        self.rank, self.size, self.groups, self.changes, self.lost = 0, 2, everybody(2, 0, ""), {}, None

    def gather(self, message, size):
        numbers = np.frombuffer(message, "<u8").copy()
        for number, change in self.changes.items():
            numbers[number] += np.uint64(change)
        return [message, numbers.tobytes()]


def test_a_comparison_that_takes_long_has_fewer_turns_and_all_ranks_keep_to_the_mean_of_their_wishes():
    ranks = Both()
    comparison = WeightComparison(nn.Dense(2, 2).trainable_params(), ranks, 16)
    assert comparison.after(1, wish=comparison.wish(0.0)) is None
    assert [step for step in range(1, 70) if comparison.is_due(step)] == [16, 32, 48, 64]
    comparison.heard(alike=True, wish=2.5)
    assert [step for step in range(1, 130) if comparison.is_due(step)] == [64, 128]
    ranks.changes = {0: 3}  # the wish of the other one
    assert comparison.after(64, now=True, wish=1) is None
    assert comparison.every == 64
    ranks.changes = {}
    assert comparison.after(128, now=True, wish=1) is None
    assert comparison.every == 16


@pytest.mark.parametrize(
    ("seconds", "step_seconds", "wish"),
    [(0.009, 1e-6, 1), (0.5, 10.0, 1), (0.8, 10.0, 1), (0.81, 10.0, 2), (4.0, 1.0, 50), (4.0, 1e-3, 64), (4.0, 0.0, 1)],
)
def test_a_comparison_takes_half_a_percent_of_the_time_at_most_or_a_few_milliseconds(seconds, step_seconds, wish):
    comparison = WeightComparison(nn.Dense(2, 2).trainable_params(), Both(), 16)
    comparison._seconds = seconds
    assert comparison.wish(step_seconds) == wish


class Line:
    """A table whose updates carry messages to one other rank, which tells the same but for what `changes` says."""

    def __init__(self):
        self.message, self.updates, self.changes, self.announcements = None, True, {}, 0
        self.told = []

    def announced(self, gate):
        return self.announcements

    def tell(self, message, gate):
        self.message = message
        self.told.append(message)

    def heard(self, gate):
        message, self.message = (self.message, None) if self.updates else (None, self.message)
        if message is None:
            return None
        other = message.copy()
        for number, value in self.changes.items():
            other[number] = value
        return message + other

    def drop_message(self, gate):
        self.message = None


class Watched:
    """A `WeightWatch` on one of two ranks, and what became of each of its steps."""

    def __init__(self, ranks=None, every=16, seconds=0.0):
        self.ranks, self.line, self.problems, self.exchanges = ranks or Both(), Line(), [], []
        status = SimpleNamespace(step_seconds=seconds, check_seconds=0.0, protections=None)
        self.monitor = SimpleNamespace(
            status=status, problem=self.problems.append, protections=SimpleNamespace(has=self.has, to_json=dict)
        )
        self.watch, self.words, gather = WeightWatch(Health()), [], self.ranks.gather
        self.ranks.gather = lambda *words: self.exchanges.append(self.step) or gather(*words)
        gate = SimpleNamespace(carries=True)
        self.watch.serve(self.monitor, self.line, gate, self.ranks)
        self.watch.watch(nn.Dense(2, 2).trainable_params(), every)

    def has(self, weight_comparison):
        self.words.append(weight_comparison)

    def steps(self, *numbers):
        for self.step in numbers:
            self.watch.compare(StepRecord(self.step, None, 1.0, refused=False))
            self.monitor.status.step_seconds += 2.0
        return self


def test_the_first_step_has_an_exchange_of_its_own_and_later_ones_go_with_updates():
    watched = Watched().steps(*range(1, 60))
    assert watched.exchanges == [1]
    assert len(watched.line.told) == 3
    assert watched.watch._comparison.alike == 48
    assert watched.problems == []


def test_a_hash_that_no_update_takes_along_is_missed_and_the_ranks_compare_without_it():
    watched = Watched()
    watched.line.updates = False
    watched.steps(*range(1, 70))
    assert watched.exchanges == [1, 32, 64]
    assert watched.watch._comparison.alike == 64


def test_hashes_that_are_unlike_and_then_alike_are_a_problem_that_names_their_step():
    watched = Watched().steps(*range(1, 17))
    watched.line.changes = {40: 7}
    watched.steps(17)
    assert watched.exchanges == [1, 17]
    assert watched.problems == ["the ranks told unlike hashes of their weights after step 16, and are alike now"]


def test_what_is_the_same_on_some_ranks_only_has_exchanges_as_before():
    ranks = Both()
    shards = [
        Shard(labels=("all",)),
        Shard(labels=("all",)),
        Shard(labels=("all", "some")),
        Shard(labels=("all", "some")),
    ]
    ranks.groups, ranks.size = Groups(shards, 0, ""), 4
    gather = ranks.gather
    ranks.gather = lambda *words: gather(*words) * 2
    assert ranks.groups.whole
    watched = Watched(ranks).steps(*range(1, 40))
    assert watched.exchanges == [1, 16, 32]
    assert watched.line.told == []


def test_a_step_that_is_made_again_after_a_roll_back_is_not_known_to_be_alike():
    watched = Watched().steps(*range(1, 34))
    assert watched.watch._comparison.alike == 32
    assert watched.steps(20).watch._comparison.alike == 19


def test_where_comparing_takes_long_the_ranks_agree_on_fewer_turns_and_say_so():
    watched = Watched()
    watched.watch._comparison.wish = lambda seconds: 3
    watched.steps(*range(1, 130))
    assert watched.words == ["over the ranks, every 64 steps"]
    assert watched.exchanges == [1]
    assert len(watched.line.told) == 2


def test_what_a_step_takes_is_known_of_a_training_that_is_resumed_at_a_late_step():
    watched, told = Watched(seconds=500.0), []
    watched.watch._comparison.wish = lambda seconds: told.append(seconds) or 1
    watched.steps(100_001, 100_002, 100_003)
    assert told == [0.0, 2.0, 2.0]

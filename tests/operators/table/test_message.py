"""What a sum over the ranks tells of their hashes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.operators.table.gate import Gate
from asd.operators.table.message import ANNOUNCEMENT, WIDTH, answer_of, message_of

HASHES = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(HASHES, st.integers(1, 64)), min_size=1, max_size=9))
def test_all_are_alike_exactly_when_there_is_one_hash_and_the_wish_is_the_mean(told):
    sums = np.sum([message_of(*each) for each in told], axis=0)
    answer = answer_of(sums, len(told))
    assert answer.alike == (len({each for each, _ in told}) == 1)
    assert answer.wish == sum(wish for _, wish in told) / len(told)


@given(HASHES, st.integers(0, 63), st.integers(2, 2**18))
def test_one_bit_of_one_of_very_many_ranks_is_seen(healthy, bit, ranks):
    one = message_of(healthy, 1)
    assert answer_of(one * np.float32(ranks), ranks).alike
    assert not answer_of(one * np.float32(ranks - 1) + message_of(healthy ^ 1 << bit, 1), ranks).alike


def test_a_message_says_nothing_of_its_rank_s_verdict_and_an_announcement_of_all_ranks_is_none():
    assert message_of(2**64 - 1, 64)[0] == 0
    assert 32767 * ANNOUNCEMENT < 0.5


class Guard:
    def __init__(self, width):
        self.width = width


@pytest.mark.parametrize(("widths", "carries"), [((), False), ((1,), False), ((WIDTH,), True), ((WIDTH, 1), False)])
def test_a_gate_carries_a_message_if_each_of_its_guards_does(widths, carries):
    gate, guards = Gate(1), [Guard(width) for width in widths]
    gate.guards.update(guards)
    assert gate.carries is carries

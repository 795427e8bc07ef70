"""The hash of a weight, and what a gate tells all ranks besides."""

from itertools import pairwise

import mindspore as ms
import numpy as np
import pytest
from checked_nets import Decoder, assert_same_bits, fill, ids, targets, values
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from mindspore import nn

from asd import Config
from asd.operators import StepMonitor
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import WeightComparison, hash_of, hash_without_kernel, total_of
from asd.operators.table import slots

ARRAYS = arrays(st.sampled_from([np.float16, np.float32, np.float64, np.int8]), array_shapes(max_dims=3, max_side=9))


@given(ARRAYS, st.data(), st.booleans())
def test_any_flipped_bit_changes_the_hash_and_the_same_bits_have_the_same(array, data, use_kernel):
    before = hash_of(array, use_kernel=use_kernel)
    assert hash_of(array.copy(), use_kernel=use_kernel) == before
    flipped = array.copy()
    place = data.draw(st.integers(0, array.nbytes - 1))
    flipped.reshape(-1).view(np.uint8)[place] ^= 1 << data.draw(st.integers(0, 7))
    assert hash_of(flipped, use_kernel=use_kernel) != before


@pytest.mark.parametrize("use_kernel", [True, False])
def test_places_count(use_kernel):
    one = np.arange(100, dtype=np.float32)
    other = one.copy()
    other[[3, 70]] = other[[70, 3]]
    assert hash_of(one, use_kernel=use_kernel) != hash_of(other, use_kernel=use_kernel)
    assert total_of([1, 2]) != total_of([2, 1])


@given(arrays(np.uint8, st.integers(0, 50)))
def test_without_the_kernel_it_is_the_sum_that_is_written_down(data):
    words = np.frombuffer(data.tobytes() + bytes(-data.size % 4), "<u4").tolist()
    assert hash_without_kernel(data) == sum(word * (2 * i + 1) for i, word in enumerate(words)) % 2**64


def test_a_large_weight_has_the_sum_over_all_its_blocks():
    words = np.arange(2**20 + 5, dtype=np.uint32)
    assert hash_without_kernel(words) == sum(i * (2 * i + 1) for i in range(words.size)) % 2**64


def test_one_rank_alone_compares_nothing():
    alone = WeightComparison(nn.Dense(2, 2).trainable_params(), Exchange(), 50)
    assert not alone.active
    assert alone.after(50, announced=True) is None


def test_an_announcement_goes_with_the_next_update_once_and_refuses_nothing(mode, backend):
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

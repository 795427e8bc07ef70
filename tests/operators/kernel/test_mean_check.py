"""Means over ranks against what the ranks gave: every order of additions passes, an error of some size does not."""

from types import SimpleNamespace
from unittest import mock

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd.errors import ConfigError
from asd.operators.kernel.mean import BLOCK, blocks_of, check_mean, tell
from asd.operators.measure.own_gradients import reducer_of
from asd.operators.recompute.mean import _makes_means, _OperatorMeans
from asd.operators.table import slots

FINITE = st.floats(-(2.0**60), 2.0**60, width=32)


def ring(gradients):
    """The mean as a ring makes it: each part of the tensor begins its sum at another rank."""
    ranks = len(gradients)
    parts = np.array_split(np.arange(gradients[0].size), ranks)
    total = np.zeros_like(gradients[0])
    for first, part in enumerate(parts):
        for rank in range(ranks):
            total[part] += gradients[(first + rank) % ranks][part]
    return total * np.float32(1 / ranks)


def normal(ranks, size, seed=0):
    return list(np.random.default_rng(seed).standard_normal((ranks, size)).astype(np.float32))


@given(st.integers(2, 9).flatmap(lambda ranks: arrays(np.float32, (ranks, 40), elements=FINITE)))
def test_every_mean_of_any_numbers_passes_in_whatever_order_it_is_made(gradients):
    forward = np.float32(0)
    for gradient in gradients:
        forward = forward + gradient
    for mean in (ring(list(gradients)), forward * np.float32(1 / len(gradients))):
        assert check_mean(gradients, mean) <= 1


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
@pytest.mark.parametrize("make", [
    lambda ranks, size: normal(ranks, size),
    lambda ranks, size: [np.full(size, 1 / 3, np.float32)] * ranks,  # all elements are rounded alike
    lambda ranks, size: [np.full(size, 1e-41, np.float32)] * ranks,
    lambda ranks, size: [gradient * np.float32(1e30) for gradient in normal(ranks, size)],
    lambda ranks, size: [gradient - gradient.mean() for gradient in normal(ranks, size)],
    lambda ranks, size: [np.zeros(size, np.float32)] * ranks,
], ids=["normal", "equal", "denormal", "huge", "sums to zero", "zeros"])  # fmt: skip
def test_healthy_means_of_large_tensors_pass(ranks, make):
    gradients = make(ranks, 3 * BLOCK // 2)
    assert check_mean(gradients, ring(gradients)) <= 1


def test_denormals_that_a_unit_flushes_to_zero_are_no_fault():
    gradients = [np.full(1000, 1e-39, np.float32)] * 4
    assert check_mean(gradients, np.zeros(1000, np.float32)) <= 1


@pytest.mark.parametrize("ranks", [2, 8])
def test_an_error_of_a_tenth_of_a_usual_element_is_seen_in_ten_thousand_of_them(ranks):
    gradients = normal(ranks, 10_000)
    mean = ring(gradients)
    usual = np.abs(mean).mean()
    mean[1234] += usual / 10
    assert check_mean(gradients, mean) > 1


@pytest.mark.parametrize("place", [0, BLOCK - 1, BLOCK, 3 * BLOCK - 1])
def test_in_a_tensor_of_any_size_each_block_has_its_own_sum(place):
    gradients = normal(4, 3 * BLOCK)
    mean = ring(gradients)
    mean[place] += 1
    assert check_mean(gradients, mean) > 1
    assert blocks_of(3 * BLOCK) == 3
    assert blocks_of(3 * BLOCK + 1) == 4


def test_a_chunk_that_one_rank_did_not_contribute_to_is_seen():
    gradients = normal(8, 4096)
    mean = ring(gradients)
    mean[512:1024] -= gradients[3][512:1024] / 8
    assert check_mean(gradients, mean) > 1


def test_a_mean_that_was_rounded_to_float16_passes_and_one_that_is_off_does_not():
    gradients = [gradient.astype(np.float16) for gradient in normal(4, 1000)]
    mean = ring([gradient.astype(np.float32) for gradient in gradients]).astype(np.float16)
    assert check_mean(gradients, mean) <= 1
    mean[7] += 1
    assert check_mean(gradients, mean) > 1


def test_small_gradients_in_float16_are_checked_too():
    gradients = [(gradient * 1e-3).astype(np.float16) for gradient in normal(4, BLOCK)]
    mean = ring([gradient.astype(np.float32) for gradient in gradients]).astype(np.float16)
    assert check_mean(gradients, mean) <= 1
    assert check_mean(gradients, np.zeros_like(mean)) > 0.01
    mean[7] += np.float16(0.1)
    assert check_mean(gradients, mean) > 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_a_rank_gave_that_is_not_finite_says_nothing_about_the_mean(value):
    gradients = normal(2, 100)
    gradients[1][3] = value
    assert np.isnan(check_mean(gradients, ring(gradients)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_mean_of_finite_gradients_that_is_not_finite_is_as_wrong_as_can_be(value):
    gradients = normal(2, 3 * BLOCK)
    mean = ring(gradients)
    mean[BLOCK + 3] = value
    assert check_mean(gradients, mean) == np.inf


def test_gradients_so_large_that_their_sum_may_overflow_say_nothing():
    gradients = [np.full(100, 2e38, np.float32)] * 2
    with np.errstate(over="ignore"):
        assert np.isnan(check_mean(gradients, ring(gradients)))


def test_a_sum_over_ranks_instead_of_a_mean_has_a_factor_of_one():
    gradients = normal(4, 100)
    assert check_mean(gradients, np.sum(gradients, 0), factor=1.0) <= 1
    assert check_mean(gradients, np.sum(gradients, 0)) > 1


def test_what_a_rank_tells_is_the_sum_and_the_sum_of_magnitudes_of_each_block():
    gradient = np.arange(-10, BLOCK, dtype=np.float32)
    told = tell(gradient)
    assert told.shape == (2, 3)
    first = gradient[:BLOCK].astype(np.float64)
    assert told[0].tolist() == [np.float32(first.sum()), np.float32(np.abs(first).sum()), 1]
    assert told[1].tolist() == [np.float32(gradient[BLOCK:].sum()), np.float32(gradient[BLOCK:].sum()), 1]


@pytest.mark.parametrize(("gradients", "mean"), [
    ([np.zeros(3, np.float32)] * 2, np.zeros(4, np.float32)),
    ([np.zeros(0, np.float32)] * 2, np.zeros(0, np.float32)),
    ([np.zeros(3, np.int32)] * 2, np.zeros(3, np.float32)),
    ([np.zeros(3, np.float32)] * 2, np.zeros(3, np.float64)),
])  # fmt: skip
def test_other_shapes_and_types_are_told(gradients, mean):
    with pytest.raises(ConfigError, match="valid (is|are)"):
        check_mean(gradients, mean)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("make", [
    lambda: [np.full(70_000, value, np.float32) for value in (0.1, 0.23)],
    lambda: [np.full(70_000, value, np.float32) for value in (1 / 3, 1 / 3)],
    lambda: [np.full(7, 1.7, np.float32)] * 2,
    lambda: [np.abs(gradient) for gradient in normal(2, 3 * BLOCK // 2)],
    lambda: [gradient - gradient.mean() for gradient in normal(2, 3 * BLOCK // 2)],
    lambda: [np.zeros(300, np.float32)] * 2,
], ids=["unequal constants", "constants", "few", "of one sign", "sums to zero", "zeros"])  # fmt: skip
def test_sums_by_operators_stay_within_their_bound_and_see_what_is_off(make):
    gradients = make()
    means = two_ranks_by_operators(gradients[0].size)
    told = sum(means.tell((Tensor(gradient),)).asnumpy() for gradient in gradients)
    mean = ring(gradients)
    assert judged_by(means, mean, told) <= 1
    mean[5] += 1 + 8 * np.abs(mean).mean()
    assert judged_by(means, mean, told) > 1
    mean[5] = np.nan
    assert judged_by(means, mean, told) > 1


def two_ranks_by_operators(size):
    """The check of one gradient by MindSpore operators, without its all-reduce, which takes two processes."""
    slots.use_backend("operators")
    reducer = SimpleNamespace(split_fusion=False, allreduce=P.AllReduce(), degree=Tensor(0.5, ms.float32), mean=True)
    with mock.patch("asd.operators.recompute.mean.get_group_size", return_value=2):
        weight = Parameter(Tensor(np.zeros(size, np.float32)), name="w")
        means = _OperatorMeans(slots.table(), reducer, 1, [(0, weight)])
    means.sum_over_ranks = lambda told: told
    return means


def judged_by(means, mean, told):
    site = means.sites[0]
    slots.table().read([site])
    means.compare((Tensor(mean),), Tensor(told)).asnumpy()
    (reading,) = slots.table().read([site])
    assert reading.calls == 1
    return reading.max_abs


def test_a_reducer_that_does_something_of_its_own_is_left_alone():
    class Clipping(nn.DistributedGradReducer):
        def construct(self, gradients):
            return super().construct(gradients)

    class Named(nn.DistributedGradReducer):
        pass

    assert [_makes_means(kind) for kind in (nn.DistributedGradReducer, Named, Clipping)] == [True, True, False]


def test_what_is_handed_over_as_a_reducer_and_is_none_is_refused_in_one_sentence():
    optimizer = nn.SGD([Parameter(Tensor(np.zeros(3, np.float32)), name="w")])
    with pytest.raises(ConfigError, match="'Dense', .* a DistributedGradReducer of the optimizer's 1"):
        reducer_of(None, optimizer, nn.Dense(2, 2))
    assert reducer_of(nn.Dense(2, 2), optimizer) is None

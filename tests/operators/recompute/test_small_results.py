"""Healthy results that are so small that their type has few bits left for them raise no alarm, whatever made them."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import ParameterTuple, Tensor, nn, ops

from asd.operators import install_checksum
from asd.operators.table import slots

NETS = {
    "softmax": (lambda: nn.SequentialCell(nn.Softmax()), (4, 7, 9), (4, 7, 9)),
    "convolution": (lambda: nn.SequentialCell(nn.Conv2d(3, 8, 3)), (2, 3, 8, 8), (2, 8, 8, 8)),
    "embedding": (lambda: nn.SequentialCell(nn.Embedding(30, 16)), (4, 9), (4, 9, 16)),
    "norm": (lambda: nn.SequentialCell(nn.LayerNorm((24,))), (5, 24), (5, 24)),
    "product": (lambda: nn.SequentialCell(nn.Dense(24, 17)), (5, 24), (5, 17)),
}


def scores_of(net, x, dy):
    """The worst score of each checkpoint of one forward and backward pass."""
    sites = install_checksum(net)
    net.set_grad()
    table = slots.table()
    table.schedule_checksums(1, 0, True)
    weights = ParameterTuple(net.trainable_params())
    gradient = ops.GradOperation(get_all=True, get_by_list=len(weights) > 0, sens_param=True)
    found = gradient(net, weights)(x, dy) if weights else (gradient(net)(x, dy), ())
    for each in (*found[0], *found[1]):
        each.asnumpy()
    return {reading.checkpoint: reading.max_abs for reading in table.read(sites)}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("mode", ["pynative"], indirect=True)
def test_a_small_healthy_result_raises_no_alarm(mode, name, dtype):
    make, shape, of_result = NETS[name]
    rng = np.random.default_rng(7)
    for size in (1e-3, 1e-5, 1e-7):
        for _ in range(3):
            net = make()
            for parameter in net.get_parameters():
                parameter.set_dtype(ms.float16 if dtype == np.float16 else ms.float32)
            x = rng.integers(0, 30, shape).astype(np.int32) if name == "embedding" else rng.normal(size=shape)
            x = Tensor(x if name == "embedding" else x.astype(dtype))
            found = scores_of(net, x, Tensor((rng.normal(size=of_result) * size).astype(dtype)))
            assert found
            assert all(0 <= score < 1 for score in found.values()), (size, found)


@pytest.mark.parametrize("mode", ["pynative"], indirect=True)
def test_a_norm_of_numbers_beside_which_float32_has_no_bits_raises_no_alarm(mode):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        net = nn.SequentialCell(nn.LayerNorm((7,), epsilon=1e-7))
        x, dy = rng.normal(size=(4, 7)) * 1e-38, rng.normal(size=(4, 7))
        found = scores_of(net, Tensor(x.astype(np.float32)), Tensor(dy.astype(np.float32)))
        assert found
        assert all(0 <= score < 1 for score in found.values()), found

"""Blocks of tensors that are read where they lie: what is said of each is what NumPy says of it."""

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindspore import Tensor

from asd.operators.kernel import blocks as kernel_blocks
from asd.operators.kernel import library as kernel
from asd.operators.kernel.blocks import BLOCK_DTYPE, TYPES, blocks_of, read_blocks
from asd.rules.history.seal import BLOCK

pytestmark = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")


def extremes_of(array):
    array = array.astype(np.float64)
    largest = np.abs(array).max() if np.isfinite(array).all() else np.nan
    return largest, array.min()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, BLOCK // 8, 3 * BLOCK // 4 + 5])
def test_each_block_has_its_extremes(dtype, size):
    array = (np.random.default_rng(size).standard_normal(size) * 100).astype(dtype)
    table = blocks_of(array.ctypes.data, array.nbytes, array.dtype.name, smallest=True)
    _, found = read_blocks(table)
    parts = np.split(array, range(BLOCK // array.itemsize, size, BLOCK // array.itemsize))
    assert found.tolist() == [list(extremes_of(part)) for part in parts]


@given(st.lists(st.floats(width=16, allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_bfloat16_is_read_as_it_is(values):
    tensor = Tensor(np.array(values, np.float32), ms.bfloat16)
    widened = tensor.astype(ms.float32).asnumpy()
    _, found = read_blocks(blocks_of(tensor.data_ptr(), tensor.nbytes, "bfloat16", smallest=True))
    assert found.tolist() == [list(extremes_of(widened))]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_magnitude(dtype, value):
    array = np.ones(100, dtype)
    array[71] = value
    _, found = read_blocks(blocks_of(array.ctypes.data, array.nbytes, array.dtype.name))
    assert np.isnan(found[0, 0])


def test_the_smallest_value_is_looked_for_only_where_it_is_asked_for():
    array = np.full(9, -3.0, np.float32)
    _, found = read_blocks(blocks_of(array.ctypes.data, array.nbytes, "float32"))
    assert found.tolist() == [[3.0, 0.0]]
    hashes, found = read_blocks(blocks_of(array.ctypes.data, array.nbytes, "float32"), extremes=False)
    assert (len(hashes), len(found)) == (1, 0)


def test_threads_change_nothing(monkeypatch):
    array = np.random.default_rng(3).standard_normal(5 << 20).astype(np.float32)
    table = blocks_of(array.ctypes.data, array.nbytes, "float32", smallest=True)
    alone = read_blocks(table[:8])
    monkeypatch.setattr(kernel_blocks, "_cores", lambda: 4)
    hashes, found = read_blocks(table)
    assert [hashes[:8].tolist(), found[:8].tolist()] == [alone[0].tolist(), alone[1].tolist()]
    assert len(set(hashes.tolist())) == len(table)
    assert found[:, 0].max() == np.abs(array).max()


def test_an_empty_tensor_has_no_block():
    assert len(blocks_of(0, 0, "float32")) == 0
    hashes, found = read_blocks(blocks_of(0, 0, "float32"))
    assert (hashes.tolist(), found.tolist()) == ([], [])


def test_the_table_is_what_the_library_takes_it_for():
    assert (BLOCK_DTYPE.itemsize, list(TYPES.values())) == (32, [2, 2, 4, 8])

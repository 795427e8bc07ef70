"""One lookup of rows: it never cries wolf, and each wrong row and each wrong sum is found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import ConfigError
from asd.operators.kernel import library as kernel
from asd.operators.kernel.lookup import check_lookup

pytestmark = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")


def made(seed, dtype, rows=11, tokens=200, width=5):
    """Ids, of which one is often and one never, and all that belongs to them; summed in the type, in any order."""
    rng = np.random.default_rng(seed)
    ids = np.minimum(rng.integers(0, 2 * rows, tokens), rows - 2).astype(np.int32)
    table = rng.standard_normal((rows, width)).astype(dtype)
    dy = (rng.standard_normal((tokens, width)) * 10.0 ** rng.integers(-3, 2, (tokens, 1))).astype(dtype)
    dtable = np.zeros_like(table)
    for token in rng.permutation(tokens):
        dtable[ids[token]] += dy[token]
    return ids, table, table[ids], dy, dtable


@given(st.integers(0, 2**32), st.sampled_from(["float32", "float16"]))
@settings(max_examples=60, deadline=None)
def test_a_right_lookup_passes_and_each_wrong_element_is_found(seed, dtype):
    ids, table, y, dy, dtable = made(seed, dtype)
    found = check_lookup(ids, table, y, dy=dy, dtable=dtable)
    assert found.y == 0
    assert found.dtable < 1
    place = seed % y.size
    y.flat[place] = np.nextafter(y.flat[place], np.array(np.inf, dtype))
    assert check_lookup(ids, table, y).y == 2
    place = seed % dtable.size
    dtable.flat[place] += 0.2 * np.abs(dtable).max()
    assert check_lookup(ids, dy=dy, dtable=dtable).dtable > 1


def test_a_row_that_no_token_reads_must_be_zero_and_one_that_is_read_once_a_copy():
    ids, dy = np.array([2, 0], np.int64), np.float32([[1, 1], [3, 3]])
    right = np.float32([[3, 3], [0, 0], [1, 1]])
    assert check_lookup(ids, dy=dy, dtable=right).dtable == 0
    for row, error in ((1, 1e-30), (2, 3e-7)):
        wrong = right.copy()
        wrong[row, 1] += error
        assert check_lookup(ids, dy=dy, dtable=wrong).dtable > 1
    right[1, 0] = np.nan
    assert check_lookup(ids, dy=dy, dtable=right).dtable > 1


def test_the_gradient_of_another_row_is_wrong():
    ids, _, _, dy, dtable = made(3, "float32")
    assert check_lookup(ids, dy=dy, dtable=dtable[::-1].copy()).dtable > 1


def test_equal_terms_that_are_all_rounded_alike_are_no_fault():
    ids, dy = np.zeros(5000, np.int32), np.full((5000, 1), 0.1, np.float32)
    in_order = np.cumsum(dy, dtype=np.float32)[-1:].reshape((1, 1))
    assert check_lookup(ids, dy=dy, dtable=in_order).dtable < 1


def test_what_is_not_finite_says_nothing_and_what_does_not_fit_is_named():
    ids, _, _, dy, dtable = made(4, "float32")
    dy[:] = np.inf
    assert np.isnan(check_lookup(ids, dy=dy, dtable=dtable).dtable)
    with pytest.raises(ConfigError, match=r"int32\[200\]"):
        check_lookup(ids + 7, dy=dy, dtable=dtable)

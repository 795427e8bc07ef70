"""One softmax: it never cries wolf, and each wrong element is found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import ConfigError
from asd.operators.kernel import library as kernel
from asd.operators.kernel.softmax import check_softmax

pytestmark = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")


def made(seed, dtype, n):
    """Operands of a random size, some with a mask, and results that are computed in the type."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((5, n)) * 10.0 ** rng.integers(-2, 2, (5, 1))
    x = np.where(rng.random((5, n)) < 0.3 * (seed % 2), -np.inf, x).astype(dtype)
    x[:, 0] = 0.5
    wide = np.float32
    e = np.exp((x - x.max(-1, keepdims=True)).astype(wide))
    y = (e / e.sum(-1, keepdims=True)).astype(dtype)
    dy = rng.standard_normal((5, n)).astype(dtype)
    dx = y.astype(wide) * (dy - (y.astype(wide) * dy).sum(-1, keepdims=True))
    return x, y, dy, dx.astype(dtype)


@given(st.integers(0, 2**32), st.sampled_from(["float32", "float16"]), st.sampled_from([2, 3, 16, 70, 1000]))
@settings(max_examples=80, deadline=None)
def test_a_right_softmax_passes_and_each_wrong_element_is_found(seed, dtype, n):
    x, y, dy, dx = made(seed, dtype, n)
    found = check_softmax(x, y=y, dy=dy, dx=dx)
    assert max(found) < 1
    place = seed % y.size
    for name, right in (("y", y), ("dx", dx)):
        wrong = right.copy()
        wrong.flat[place] += np.abs(right).max() * 0.2 + 0.01
        assert getattr(check_softmax(x, **({"y": y, "dy": dy, "dx": dx} | {name: wrong})), name) > 1


def test_an_error_that_leaves_the_sum_of_a_row_as_it_is_is_found_too():
    x, y, _, _ = made(2, "float32", 16)
    y[1, [0, 3]] = y[1, [3, 0]]
    assert check_softmax(x, y=y).y > 1


def test_a_row_that_is_masked_as_a_whole_says_nothing_and_what_does_not_fit_is_named():
    x = np.full((1, 4), -np.inf, np.float32)
    assert np.isnan(check_softmax(x, y=np.full((1, 4), np.nan, np.float32)).y)
    with pytest.raises(ConfigError, match=r"float32\[1, 4\], float16\[1, 4\]"):
        check_softmax(x, y=np.zeros((1, 4), np.float16))

"""Three ways to the same four numbers: the C++ kernel, MindSpore operators, NumPy in float64."""

import math
import zlib

import mindspore as ms
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mindspore import Tensor

from asd.dumps.record.crc import crc32
from asd.operators.debugger.record import delivery
from asd.operators.kernel import library as kernel
from asd.operators.measure.statistics import statistics_by_operators

needs_kernel = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")
TYPES = [np.float16, np.float32, np.float64]
ROUNDING = 3e-6
"""Of a float32 sum of a few thousand positive numbers."""
SMALLEST_NORMAL = 1.2e-38
"""MindSpore's threads take a smaller float32 for zero."""
often = settings(max_examples=300, deadline=None, derandomize=True)
seldom = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def reference(array):
    with np.errstate(over="ignore", invalid="ignore"):
        wide = array.astype(np.float64)
        finite = np.isfinite(wide)
        squares = float(np.sum(wide * wide))
        magnitudes = float(np.sum(np.abs(wide)))
    return float(np.max(np.abs(wide[finite]), initial=0.0)), squares, int(np.sum(~finite)), magnitudes


def by_operators(array):
    features, bad = statistics_by_operators(Tensor(array))
    largest, norm, mean = features.asnumpy().tolist()
    return largest, norm, int(bad.asnumpy()), mean


def arrays(dtype, *, special=True, smallest=0):
    width = {np.float16: 16, np.float32: 32, np.float64: 64}[dtype]
    numbers = st.floats(width=width, allow_nan=special, allow_infinity=special)
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=smallest, max_side=9)
    return hnp.arrays(dtype, shapes, elements=numbers)


def assert_norm(found, expected, rtol=ROUNDING):
    """Equal, where `inf` counts as `inf` and NaN as NaN."""
    np.testing.assert_allclose(found, expected, rtol=rtol)


@needs_kernel
@pytest.mark.parametrize("dtype", TYPES)
def test_the_kernel_agrees_with_numpy_on_anything(dtype):
    @often
    @given(arrays(dtype))
    def check(array):
        largest, squares, bad, magnitudes = reference(array)
        found = kernel.statistics(array)
        assert found.max_abs == largest
        assert found.non_finite == bad
        assert_norm(found.sum_squares, squares)
        assert_norm(found.sum_abs, magnitudes)

    check()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_operators_agree_with_numpy_on_anything(dtype, clean):
    ms.set_context(mode=1)

    @seldom
    @given(arrays(dtype, smallest=1))
    def check(array):
        largest, squares, bad, magnitudes = reference(array)
        found = by_operators(array)
        np.testing.assert_allclose(found[0], largest, rtol=0, atol=SMALLEST_NORMAL)
        assert found[2] == bad
        saturated = (
            min(math.sqrt(squares), float(np.finfo(np.float32).max)) if squares < math.inf else math.sqrt(squares)
        )
        if bad:
            assert not math.isfinite(found[1])
        elif found[1] == math.inf or saturated > 3.4e38:
            assert math.sqrt(squares) > 3.4e38
        else:
            np.testing.assert_allclose(found[1], saturated, rtol=ROUNDING, atol=SMALLEST_NORMAL)
            np.testing.assert_allclose(found[3], magnitudes / array.size, rtol=ROUNDING, atol=SMALLEST_NORMAL)

    check()


@needs_kernel
@pytest.mark.parametrize("size", [1, 63, 64, 65, 2047, 2048, 2049, 4096, 10_007])
@pytest.mark.parametrize("dtype", TYPES)
def test_sizes_around_a_block_and_a_lane_are_read_to_the_last_element(dtype, size):
    array = np.random.default_rng(size).normal(size=size).astype(dtype)
    largest, squares, bad, _ = reference(array)
    for place in {0, size // 2, size - 1}:
        struck = array.copy()
        struck[place] = 100.0
        found = kernel.statistics(struck)
        assert found.max_abs == 100.0
        assert_norm(found.sum_squares, squares - float(array[place]) ** 2 + 1e4)
        struck[place] = np.nan
        found = kernel.statistics(struck)
        assert (found.non_finite, math.isnan(found.sum_squares)) == (1, True)
    assert kernel.statistics(array)[:3:2] == (largest, bad)


SPECIAL = {
    "zeros": np.zeros(70, np.float32),
    "minus zero": np.full(3, -0.0, np.float32),
    "denormal": np.full(70, 1e-45, np.float32),
    "denormal half": np.full(70, 6e-8, np.float16),
    "tiny": np.full(70, 1e-30, np.float32),
    "huge": np.full(70, 1e37, np.float32),
    "largest half": np.full(70, 65504, np.float16),
    "mixed": np.array([1e-30, 1e30, 1.0], np.float32),
    "inf": np.array([1, -np.inf, 2], np.float32),
    "nan not first": np.array([0, np.nan, 1], np.float32),
    "nan first": np.array([np.nan, 0, 1], np.float32),
    "nan of all signs": np.frombuffer(np.array([0xFFC00000, 0x7F800001, 0x7FC00000], np.uint32).tobytes(), np.float32),
    "inf and nan": np.array([np.inf, np.nan], np.float16),
    "scalar": np.array(-7.5, np.float32),
}


@needs_kernel
@pytest.mark.parametrize("name", SPECIAL)
def test_the_kernel_is_right_on_special_values(name):
    largest, squares, bad, magnitudes = reference(SPECIAL[name])
    found = kernel.statistics(SPECIAL[name])
    assert found.max_abs == largest
    assert found.non_finite == bad
    assert_norm(found.sum_squares, squares)
    assert_norm(found.sum_abs, magnitudes)


@pytest.mark.parametrize("name", SPECIAL)
def test_the_operators_are_right_on_special_values_in_both_modes(name, mode):
    array = SPECIAL[name]
    largest, squares, bad, magnitudes = reference(array)
    compiled = ms.jit(statistics_by_operators) if mode == "graph" else statistics_by_operators
    features, bad_found = compiled(Tensor(array))
    found = [*features.asnumpy().tolist(), float(bad_found.asnumpy())]
    np.testing.assert_allclose(found[0], largest, rtol=0, atol=SMALLEST_NORMAL)
    assert found[3] == bad
    if bad:
        assert not math.isfinite(found[1])
        assert not math.isfinite(found[2])
    else:
        np.testing.assert_allclose(found[1], math.sqrt(squares), rtol=ROUNDING, atol=SMALLEST_NORMAL)
        np.testing.assert_allclose(found[2], magnitudes / array.size, rtol=ROUNDING, atol=SMALLEST_NORMAL)


@needs_kernel
def test_an_array_that_is_not_contiguous_is_read_by_its_elements():
    array = np.random.default_rng(0).normal(size=(40, 60)).astype(np.float32)
    for view in (array.T, array[::3, ::-7], array[:, 5], np.broadcast_to(array[0], (4, 60))):
        assert kernel.statistics(view) == kernel.statistics(view.copy())
        assert kernel.statistics(view).max_abs == np.abs(view).max()


@needs_kernel
def test_an_empty_array_has_only_zeros():
    for dtype in TYPES:
        assert kernel.statistics(np.zeros((0, 3), dtype)) == (0.0, 0.0, 0, 0.0)


@needs_kernel
def test_a_type_that_is_no_floating_point_type_is_refused_by_name():
    with pytest.raises(TypeError, match=r"^the kernel reads float16, float32 and float64, not int32\.$"):
        kernel.statistics(np.zeros(3, np.int32))


def test_the_kernel_says_so_where_it_was_not_built(monkeypatch):
    monkeypatch.setattr(kernel, "library", None)
    with pytest.raises(RuntimeError, match=r"the C\+\+ kernel was not built"):
        kernel.statistics(np.zeros(3, np.float32))


@needs_kernel
def test_the_table_in_the_library_and_its_view_in_python_have_one_layout():
    assert kernel.SLOT_DTYPE.itemsize % 8 == 0
    start = kernel.library.asd_slots()
    header = kernel.library.asd_header().contents
    assert start % 64 == 0
    assert 0 <= header.used <= kernel.library.asd_capacity()
    data = np.array([3.0, -4.0, np.inf], np.float32)
    last = kernel.library.asd_capacity() - 1
    kernel.library.asd_observe_buffer(last, data.ctypes.data, data.size, b"float32")
    memory = (kernel.ctypes.c_char * kernel.SLOT_DTYPE.itemsize).from_address(start + last * kernel.SLOT_DTYPE.itemsize)
    slot = np.frombuffer(memory, kernel.SLOT_DTYPE)[0]
    assert [slot[name] for name in ("max_abs", "l2", "non_finite", "calls", "worst_call", "mean_abs", "elements")] == [
        4.0, np.inf, 1, 1, 1, np.inf, 3
    ]  # fmt: skip
    slot_view = np.frombuffer(memory, kernel.SLOT_DTYPE)
    for field in ("max_abs", "l2", "mean_abs", "non_finite", "calls"):
        slot_view[field] = 0


@needs_kernel
def test_a_slot_number_out_of_range_is_counted_and_touches_nothing():
    header = kernel.library.asd_header().contents
    data = np.ones(3, np.float32)
    before = header.unsupported
    for slot in (-1, kernel.library.asd_capacity()):
        kernel.library.asd_observe_buffer(slot, data.ctypes.data, data.size, b"float32")
    assert header.unsupported == before + 2


@needs_kernel
@often
@given(st.binary(max_size=700), st.integers(0, 15))
def test_the_check_sum_of_the_library_is_that_of_zlib_at_every_length_and_address(content, skipped):
    array = np.frombuffer(content, np.uint8)[skipped:]
    assert delivery.crc32(array) == f"{zlib.crc32(content[skipped:]):08x}"


def test_the_check_sum_of_what_is_not_contiguous_is_that_of_its_elements_in_order():
    array = np.arange(600, dtype=np.float32).reshape(20, 30)
    assert delivery.crc32(array.T) == crc32(array.T) == f"{zlib.crc32(array.T.tobytes()):08x}"
    assert delivery.crc32(np.float32(3).reshape(())) == crc32(np.array([3], np.float32))

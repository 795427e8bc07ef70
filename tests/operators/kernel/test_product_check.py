"""The checksum of one product: it never cries wolf, and what it finds it places."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import ConfigError
from asd.operators.kernel import library as kernel
from asd.operators.kernel.product import BLOCK, TOLERANCES, check_product, sign

pytestmark = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")

SHAPES = ((1, 1, 1), (3, 5, 2), (64, 48, 300), (17, 256, 257), (128, 7, 512), (2, 1500, 3), (200, 33, 1))
TYPES = ("float32", "float16", "bfloat16")


def rounded(x, dtype):
    """Float64 to the nearest number of the type; bfloat16 as the float32 array that holds it."""
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    bits = x.astype(np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def normal(rng, shape):
    return rng.standard_normal(shape)


def heavy_tailed(rng, shape):
    return rng.standard_t(2, shape)


def positive(rng, shape):
    return 1 + rng.random(shape)


def zero_sum(rng, shape):
    x = rng.standard_normal(shape)
    return x - x.mean(-1, keepdims=True)


def half_and_half(rng, shape):
    """Long sums that grow and then cancel."""
    return np.where(np.arange(shape[-1]) < shape[-1] / 2, 1.0, -1.0) * (1 + 0.1 * rng.random(shape))


def tiny(rng, shape):
    return rng.standard_normal(shape) * 1e-18


def huge(rng, shape):
    return rng.standard_normal(shape) * 1e15


def denormal(rng, shape):
    return rng.standard_normal(shape) * 1e-30 * rng.integers(0, 2, shape)


def mixed_scales(rng, shape):
    return rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 13, shape)


def zeros(rng, shape):
    return np.zeros(shape)


def equal(rng, shape):
    return np.full(shape, 1 / 3)


def one_hot(rng, shape):
    return np.eye(shape[0], shape[1])


KINDS = (
    normal,
    heavy_tailed,
    positive,
    zero_sum,
    half_and_half,
    tiny,
    huge,
    denormal,
    mixed_scales,
    zeros,
    equal,
    one_hot,
)


def operands(rng, kind, m, k, n, dtype):
    a, b = (rounded(kind(rng, shape), dtype) for shape in ((m, k), (k, n)))
    return a, b


def product(a, b, dtype):
    """As a processor makes it: summed in float32, rounded once."""
    with np.errstate(over="ignore", invalid="ignore"):
        return rounded(a.astype(np.float32) @ b.astype(np.float32), dtype)


def in_order(a, b):
    """The product as float32 sums that are made term by term."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for column, row in zip(a.T, b, strict=True):
        total += np.outer(column, row)
    return total


def spiked(rng, terms):
    """A large term, and then only such as are lost beside it, all of one sign."""
    small = 1e-4 * (1 + rng.random((8, terms))) * 10.0 ** rng.uniform(-3, 0, (1, terms))
    small[:, 0] = 1000
    return small, 1 + rng.random((terms, 300))


def repeated(rng, terms):
    """Equal terms, which are all rounded to the same side."""
    return np.full((8, terms), 1 + rng.random((8, 1))), np.full((terms, 300), 1 + rng.random(300))


@pytest.mark.parametrize("terms", [300, 1024, 5000])
@pytest.mark.parametrize("kind", [spiked, repeated])
def test_rounding_that_goes_one_way_is_no_mistake_and_hides_none(kind, terms):
    a, b = (each.astype(np.float32) for each in kind(np.random.default_rng(terms), terms))
    product = in_order(a, b)
    found = check_product(a, b, product)
    assert not found.wrong
    if terms > 300:
        assert found.flagged > 0  # by the sum of its block
    product[5, 200] *= 1.01
    found = check_product(a, b, product)
    assert (found.wrong, found.row, found.column) == (True, 5, 200)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_right_product_is_never_called_wrong(kind, dtype):
    for seed, (m, k, n) in enumerate(SHAPES):
        a, b = operands(np.random.default_rng(seed), kind, m, k, n, dtype)
        for transpose_a, transpose_b in ((False, False), (True, False), (False, True), (True, True)):
            found = check_product(
                a.T if transpose_a else a, b.T if transpose_b else b, product(a, b, dtype),
                transpose_a=transpose_a, transpose_b=transpose_b, dtype=dtype,
            )  # fmt: skip
            assert not found.wrong, (m, k, n, found)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_a_hundred_thousand_right_sums_of_every_kind_raise_no_alarm(dtype):
    residuals = 0
    for seed in range(40):
        for kind in KINDS:
            rng = np.random.default_rng([seed, 1])
            m, k, n = rng.integers(1, 400, 3)
            found = check_product(*(pair := operands(rng, kind, m, k, n, dtype)), product(*pair, dtype), dtype=dtype)
            assert not found.wrong, (kind.__name__, seed, m, k, n, found)
            residuals += found.residuals
    assert residuals > 100_000


@given(
    st.integers(1, 40), st.integers(1, 80), st.integers(1, 300), st.sampled_from(TYPES), st.sampled_from(KINDS),
    st.integers(0, 2**32), st.integers(-40, 40),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_no_shape_type_kind_or_scale_makes_a_right_product_wrong(m, k, n, dtype, kind, seed, exponent):
    a, b = operands(np.random.default_rng(seed), kind, m, k, n, dtype)
    a = rounded(a.astype(np.float64) * 2.0**exponent, dtype)
    assert not check_product(a, b, product(a, b, dtype), dtype=dtype).wrong


@given(
    st.integers(1, 40), st.integers(1, 80), st.integers(1, 300), st.sampled_from(TYPES), st.integers(0, 2**32),
    st.data(),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_an_element_wrong_by_more_than_its_block_can_hide_is_found_where_it_is(m, k, n, dtype, seed, data):
    a, b = operands(np.random.default_rng(seed), normal, m, k, n, dtype)
    c = product(a, b, dtype)
    row, column = data.draw(st.integers(0, m - 1)), data.draw(st.integers(0, n - 1))
    c[row, column] += np.sqrt(k) * 3
    found = check_product(a, b, c, dtype=dtype)
    assert found.wrong
    assert (found.row, found.column) == (row, column)
    assert found.error == pytest.approx(3 * np.sqrt(k), rel=0.05)


def uint(c):
    return c.view({2: np.uint16, 4: np.uint32}[c.itemsize])


@pytest.mark.parametrize("dtype", TYPES)
def test_every_flip_of_a_bit_that_moves_an_element_beyond_the_tolerance_is_found(dtype):
    rng = np.random.default_rng(3)
    a, b = operands(rng, normal, 96, 64, 300, dtype)
    clean = product(a, b, dtype)
    bits = range(16) if dtype == "float16" else range(16, 32) if dtype == "bfloat16" else range(32)
    unit = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    found, beyond = 0, 0
    for bit in bits:
        for _ in range(12):
            row, column = rng.integers(96), rng.integers(300)
            c = clean.copy()
            uint(c)[row, column] ^= uint(c).dtype.type(1 << bit)
            with np.errstate(invalid="ignore"):
                change = abs(float(c[row, column]) - float(clean[row, column]))
            block = clean[row, :BLOCK] if column < BLOCK else clean[row, BLOCK:]
            check = check_product(a, b, c, dtype=dtype)
            # Twelve deviations of the rounding of a block, with each unit as large as it can be.
            if not change <= 12 * unit * np.sqrt(np.sum(block.astype(np.float64) ** 2) / 12) + 1e-3 * (
                dtype == "float32"
            ):
                beyond += 1
                assert check.wrong, (bit, clean[row, column], change)
            found += check.wrong
            if check.wrong:
                assert (check.row, check.column) == (row, column)
    assert found >= beyond > 12


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_product_that_is_not_finite_although_its_operands_are_is_wrong(value, dtype):
    a, b = operands(np.random.default_rng(0), normal, 5, 6, 7, dtype)
    c = product(a, b, dtype)
    c[3, 4] = value
    found = check_product(a, b, c, dtype=dtype)
    assert found[:4] == (np.inf, 3, 4, np.inf)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nothing_is_said_about_a_product_of_an_operand_that_is_not_finite(value):
    a, b = operands(np.random.default_rng(0), normal, 5, 6, 7, "float32")
    a[2, 1] = value
    found = check_product(a, b, product(a, b, "float32"))
    assert not found.wrong
    assert not found.judged


def test_another_row_is_judged_although_one_has_an_operand_that_is_not_finite():
    a, b = operands(np.random.default_rng(0), normal, 5, 6, 7, "float32")
    a[2, 1] = np.nan
    c = product(a, b, "float32")
    c[4, 0] += 1
    assert (check_product(a, b, c).row, check_product(a, b, c).column) == (4, 0)


def test_a_half_precision_product_that_overflows_is_right():
    a, b = np.full((2, 40), 100, np.float16), np.full((40, 3), 100, np.float16)
    assert np.isinf(product(a, b, "float16")).all()
    assert not check_product(a, b, product(a, b, "float16")).wrong


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", [normal, zero_sum, positive], ids=lambda kind: kind.__name__)
def test_a_row_copied_over_another_is_found_even_where_rows_sum_to_zero(kind, dtype):
    a, b = operands(np.random.default_rng(1), kind, 50, 64, 300, dtype)
    c = product(a, b, dtype)
    c[17] = c[30]
    found = check_product(a, b, c, dtype=dtype)
    assert found.wrong
    assert found.row == 17


def test_the_published_rules_do_not_see_a_copied_row_where_rows_sum_to_zero():
    a, b = operands(np.random.default_rng(1), zero_sum, 50, 64, 300, "bfloat16")
    c = product(a, b, "bfloat16")
    c[17] = c[30]
    assert not any(check_product(a, b, c, dtype="bfloat16", tolerance=rule).wrong for rule in ("mindspore", "torch"))


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_stuck_column_is_found(dtype, value):
    a, b = operands(np.random.default_rng(2), normal, 60, 64, 300, dtype)
    c = product(a, b, dtype)
    c[:, 111] = value
    found = check_product(a, b, c, dtype=dtype)
    assert found.wrong
    assert found.column == 111


def test_batches_are_checked_one_by_one_and_rows_are_counted_through():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 3, 5, 6)).astype(np.float32), rng.standard_normal((2, 3, 6, 7)).astype(np.float32)
    c = a @ b
    assert check_product(a, b, c).residuals == 2 * 3 * 5
    c[1, 0, 2, 3] += 1
    assert check_product(a, b, c)[1:3] == (3 * 5 + 2, 3)
    assert check_product(a, b[0, 0], a @ b[0, 0]).score < 1


# The tiny case of the published rule, computed by hand.
A, B = np.float32([[1, 2], [3, 4]]), np.float32([[1, 0, 1, 2], [0, 1, 1, -1]])


@pytest.mark.parametrize(
    ("change", "mindspore", "torch"),
    [(0.0, False, False), (1 / 32, True, False), (0.25, True, True)],
)
def test_the_published_tolerances_are_kept(change, mindspore, torch):
    c = A @ B
    c[0, 2] += change
    assert check_product(A, B, c, tolerance="mindspore", dtype="bfloat16").wrong is mindspore
    assert check_product(A, B, c, tolerance="torch", dtype="bfloat16").wrong is torch


def test_of_the_published_rules_only_that_of_mindspore_sees_a_nan():
    c = A @ B
    c[1, 1] = np.nan
    assert {rule: check_product(A, B, c, tolerance=rule).wrong for rule in TOLERANCES} == {
        "variance": True, "mindspore": True, "torch": False,
    }  # fmt: skip


def test_the_signs_of_python_are_those_of_the_kernel():
    columns = range(5000)
    assert [sign(j) for j in columns] == [kernel.library.asd_checksum_sign(j) for j in columns]
    assert abs(sum(map(sign, columns))) < 200


def test_wrong_arguments_are_named():
    with pytest.raises(ConfigError, match="tolerance has the value 'ones'"):
        check_product(A, B, A @ B, tolerance="ones")
    with pytest.raises(ConfigError, match="dtype has the value 'int8'"):
        check_product(A, B, A @ B, dtype="int8")
    with pytest.raises(ConfigError, match=r"float32\[2, 2\], float32\[4, 2\], float32\[2, 4\]"):
        check_product(A, B.T, A @ B)
    with pytest.raises(ConfigError, match="float64"):
        check_product(A.astype(np.float64), B, A @ B)

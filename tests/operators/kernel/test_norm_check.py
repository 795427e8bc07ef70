"""One norm computed again: what rounding explains passes, in every order of the additions, and nothing else does."""

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mindspore import Tensor, ops

from asd import ConfigError
from asd.operators.kernel import library as kernel
from asd.operators.kernel.norm import check_norm

pytestmark = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")

EPSILON = 1e-5


def sum_one_by_one(x):
    """Over the last axis in float32, without lanes and without pairs: the worst order there is."""
    return np.cumsum(x, axis=-1, dtype=np.float32)[..., -1:]


def norm_of(x, gamma, beta, dy, *, centred, groups=0):
    """All results in float32 with running sums, as keywords of `check_norm`."""
    shape = x.shape
    if groups:
        weights = [np.repeat(w, x[0, 0].size).reshape(groups, -1)[None] for w in (gamma, beta)]
        x, dy = (each.reshape(len(x), groups, -1) for each in (x, dy))
    else:
        weights = [gamma, beta]
    n = np.float32(x.shape[-1])
    mean = sum_one_by_one(x) / n if centred else np.float32(0)
    # The cheap way, which cancels where the mean is large.
    variance = np.maximum(sum_one_by_one(x * x) / n - mean * mean, 0) + np.float32(EPSILON)
    rstd = 1 / np.sqrt(variance)
    normal, d = (x - mean) * rstd, dy * weights[0]
    dx = d - normal * (sum_one_by_one(d * normal) / n)
    dx = (dx - sum_one_by_one(d) / n if centred else dx) * rstd
    y, terms = normal * weights[0] + weights[1], dy * normal
    if groups:
        per_channel = [each.reshape(shape[0], gamma.size, -1).transpose(1, 0, 2) for each in (terms, dy)]
    else:
        per_channel = [each.reshape(-1, gamma.size).T for each in (terms, dy)]
    dgamma, dbeta = (sum_one_by_one(each.reshape(gamma.size, -1))[:, 0] for each in per_channel)
    return {"y": y.reshape(shape), "dx": dx.reshape(shape), "dw": (dgamma, dbeta)}


def parts_of(found):
    return {"y": found["y"], "dx": found["dx"], "dgamma": found["dw"][0], "dbeta": found["dw"][1]}


def operands(seed, rows=6, width=40, *, groups=0, scale=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    shape = (rows, 2 * groups, width) if groups else (rows, width)
    x = (scale * (rng.standard_normal(shape) + offset)).astype(np.float32)
    gamma, beta = rng.standard_normal((2, 2 * groups or width)).astype(np.float32)
    dy = (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 3)).astype(np.float32)
    return x, gamma, beta, dy


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 200), width=st.integers(1, 300),
    groups=st.sampled_from([0, 1, 3]), scale=st.sampled_from([1e-8, 1e-3, 1.0, 1e6]),
    offset=st.sampled_from([0.0, 1.0, 100.0, -1e4]), centred=st.booleans(), equal=st.sampled_from([1, 7, 1000]),
)  # fmt: skip
def test_a_healthy_norm_passes_whatever_its_numbers(seed, rows, width, groups, scale, offset, centred, equal):
    x, gamma, beta, dy = operands(seed, rows, width, groups=groups, scale=scale, offset=offset)
    dy = np.repeat(dy[::equal], equal, axis=0)[:rows]  # as those of tokens that are averaged
    found = norm_of(x, gamma, beta, dy, centred=centred, groups=groups)
    check = check_norm(x, gamma, beta, dy=dy, **found, groups=groups, centred=centred, epsilon=EPSILON)
    assert not any(score >= 1 for score in check)


@pytest.mark.parametrize(("scale", "of_dy"), [(1e17, 1), (1e20, 1), (1, 1e36), (1e-20, 1e-20)])
def test_what_float32_has_no_squares_or_sums_of_is_no_fault_of_the_norm(scale, of_dy):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    x, gamma, beta, dy = operands(2, 64, 64, scale=scale)
    dy = (dy / np.abs(dy).max() * of_dy).astype(np.float32)
    norm, inputs = ops.LayerNorm(-1, -1, EPSILON), [Tensor(each) for each in (x, gamma, beta, dy)]
    gradients = ops.grad(lambda x, gamma, beta, dy: (norm(x, gamma, beta)[0] * dy).sum(), (0, 1, 2))(*inputs)
    dx, *dw = (each.asnumpy() for each in gradients)
    check = check_norm(x, gamma, beta, y=norm(*inputs[:3])[0].asnumpy(), dy=dy, dx=dx, dw=tuple(dw))
    assert not any(score >= 1 for score in check)


@given(
    seed=st.integers(0, 2**32 - 1), part=st.sampled_from(["y", "dx", "dgamma", "dbeta"]), groups=st.sampled_from([0, 3])
)
def test_one_element_that_is_off_by_a_hundredth_of_the_largest_is_found(seed, part, groups):
    x, gamma, beta, dy = operands(seed, groups=groups)
    found = norm_of(x, gamma, beta, dy, centred=True, groups=groups)
    struck = parts_of(found)[part]
    struck.reshape(-1)[np.random.default_rng(seed).integers(struck.size)] += 0.01 * np.abs(struck).max()
    check = check_norm(x, gamma, beta, dy=dy, **found, groups=groups)
    wrong = "dw" if part in ("dgamma", "dbeta") else part
    assert {name: score > 1 for name, score in check._asdict().items()} == {n: n == wrong for n in ("y", "dx", "dw")}


@pytest.mark.parametrize("row", ["zeros", "of another", "twice"])
def test_a_row_that_any_sum_over_it_would_let_pass_is_found(row):
    x, gamma, beta, dy = operands(1)
    found = norm_of(x, gamma, beta, dy, centred=True)
    dx = found["dx"]
    dx[2] = {"zeros": 0, "of another": dx[3], "twice": 2 * dx[2]}[row]
    assert check_norm(x, gamma, beta, dy=dy, dx=dx).dx > 100


def test_what_the_operands_say_nothing_about_is_not_judged():
    x, gamma, beta, dy = operands(0)
    found = norm_of(x, gamma, beta, dy, centred=True)
    assert np.isnan(check_norm(x, gamma, beta, y=found["y"])[1:]).all()
    gamma[1] = np.inf  # which the gradients of the weights do not depend on
    y, dx, dw = check_norm(x, gamma, beta, dy=dy, **found)
    assert np.isnan([y, dx]).all()
    assert dw < 1


@pytest.mark.parametrize("wrong", [False, True])
def test_a_block_that_is_not_finite_or_has_no_variance_left_says_nothing_and_the_others_do(wrong):
    x, gamma, beta, dy = operands(0)
    found = norm_of(x, gamma, beta, dy, centred=True)
    x[1, 1], x[2] = np.inf, 1e4
    found["dx"][4, 7] *= 1.5 if wrong else 1
    y, dx, dw = check_norm(x, gamma, beta, dy=dy, **found)
    assert y < 1
    assert (dx > 1) is wrong
    assert np.isnan(dw)


def test_a_result_that_is_not_finite_though_its_operands_are_is_wrong():
    x, gamma, beta, dy = operands(0)
    found = norm_of(x, gamma, beta, dy, centred=True)
    for array in parts_of(found).values():
        array.reshape(-1)[3] = np.nan
    assert check_norm(x, gamma, beta, dy=dy, **found) == (np.inf, np.inf, np.inf)


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16], ids=str)
@pytest.mark.parametrize(("shape", "offset"), [((96, 64), 0), ((8, 4096), 0), ((64, 256), 30), ((4096, 16), 1)])
def test_the_layer_norm_of_mindspore_passes_and_its_wrong_element_does_not(shape, offset, dtype):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    x, gamma, beta, dy = operands(3, *shape, offset=offset)
    inputs = [Tensor(each).astype(dtype) for each in (x, gamma, beta, np.clip(dy, -5, 5))]
    norm = ops.LayerNorm(-1, -1, EPSILON)

    def weighted(x, gamma, beta, dy):
        return (norm(x, gamma, beta)[0] * dy).sum()

    gradients = ops.grad(weighted, (0, 1, 2))(*inputs)
    y = norm(*inputs[:3])[0].asnumpy()
    dx, dgamma, dbeta = (each.asnumpy() for each in gradients)
    x, gamma, beta, dy = (each.asnumpy() for each in inputs)
    found = {"y": y.copy(), "dx": dx.copy(), "dw": (dgamma, dbeta)}
    assert max(check_norm(x, gamma, beta, dy=dy, **found)) < 0.7
    found["y"][1, 3] += 0.3
    found["dx"][1, 3] += 0.3 * np.abs(dx).max()
    y_score, dx_score, _ = check_norm(x, gamma, beta, dy=dy, **found)
    assert y_score > 1
    assert dx_score > 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"gamma": np.ones(7, np.float32)},
        {"y": np.ones((6, 41), np.float32)},
        {"dw": (np.ones(40, np.float32), np.ones(41, np.float32))},
        {"groups": 3},
        {"x": np.ones((6, 40), np.int32)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_does_not_fit_is_one_sentence(wrong):
    x, gamma, beta, dy = operands(0)
    given = {"x": x, "gamma": gamma, "beta": beta, "dy": dy, **norm_of(x, gamma, beta, dy, centred=True), **wrong}
    with pytest.raises(ConfigError, match="valid"):
        check_norm(given.pop("x"), given.pop("gamma"), given.pop("beta"), **given)

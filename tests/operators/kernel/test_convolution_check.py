"""The checksums of one convolution: they never cry wolf, and what is wrong is found, whatever its shape."""

import numpy as np
import pytest
from test_product_check import TYPES, equal, heavy_tailed, mixed_scales, normal, positive, rounded

from asd import ConfigError
from asd.operators.kernel import library as kernel
from asd.operators.kernel.convolution import check_convolution

pytestmark = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")

SHAPES = {  # (N, channels, H, W), outputs, kernel, and how
    "plain": ((2, 3, 7, 8), 5, (3, 2), {}),
    "padded": ((2, 4, 6, 9), 4, (3, 3), {"padding": (1, 2), "after": (2, 0), "stride": (2, 1)}),
    "grouped": ((2, 6, 9, 6), 4, (2, 2), {"groups": 2, "dilation": (2, 1), "stride": (1, 3)}),
    "depthwise": ((2, 5, 6, 6), 5, (3, 3), {"groups": 5, "padding": (1, 1), "after": (1, 1)}),
    "wide": ((2, 8, 5, 5), 300, (1, 1), {}),
    "jumping": ((1, 2, 11, 11), 3, (2, 2), {"stride": (4, 3)}),
    "padded more than it is wide": ((1, 2, 3, 3), 2, (2, 2), {"padding": (3, 2), "after": (1, 3)}),
}


def convolved(x, w, dy=None, *, stride=(1, 1), padding=(0, 0), after=(0, 0), dilation=(1, 1), groups=1):
    """y, and with dy the gradients of x and w, as they are defined; in float64, or float32 for float32 operands."""
    (n, _, height, width), (outputs, channels, kh, kw) = x.shape, w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (padding[0], after[0]), (padding[1], after[1])))
    out = [(padded.shape[2 + i] - (w.shape[2 + i] - 1) * dilation[i] - 1) // stride[i] + 1 for i in range(2)]
    y = np.zeros((n, outputs, *out), x.dtype)
    dpadded, dw = np.zeros_like(padded), np.zeros_like(w)
    per = outputs // groups
    for i in range(kh):
        for j in range(kw):
            rows = slice(i * dilation[0], i * dilation[0] + (out[0] - 1) * stride[0] + 1, stride[0])
            columns = slice(j * dilation[1], j * dilation[1] + (out[1] - 1) * stride[1] + 1, stride[1])
            for g in range(groups):
                ours, theirs = slice(g * per, (g + 1) * per), slice(g * channels, (g + 1) * channels)
                seen = padded[:, theirs, rows, columns]
                y[:, ours] += np.einsum("nchw,oc->nohw", seen, w[ours, :, i, j])
                if dy is not None:
                    dpadded[:, theirs, rows, columns] += np.einsum("nohw,oc->nchw", dy[:, ours], w[ours, :, i, j])
                    dw[ours, :, i, j] += np.einsum("nohw,nchw->oc", dy[:, ours], seen)
    dx = dpadded[:, :, padding[0] : padding[0] + height, padding[1] : padding[1] + width]
    return y, dx, dw


def made(kind, shape, outputs, kernel_size, how, dtype, seed=0):
    """Operands and results of one type, and how they are given to the check."""
    rng = np.random.default_rng([seed, outputs])
    weights = (outputs, shape[1] // how.get("groups", 1), *kernel_size)
    x, w = (rounded(kind(rng, size), dtype) for size in (shape, weights))
    wide = [each.astype(np.float32) for each in (x, w)]
    dy = rounded(kind(rng, convolved(*wide, **how)[0].shape), dtype)
    results = [rounded(each, dtype) for each in convolved(*wide, dy.astype(np.float32), **how)]
    given = {name: value for name, value in how.items() if name not in ("after", "groups")} | {"dtype": dtype}
    return (x, w), dict(zip(("y", "dx", "dw"), results, strict=True)) | {"dy": dy}, given


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_convolution_passes_and_each_wrong_element_is_found(shape, dtype):
    operands, parts, given = made(normal, *SHAPES[shape], dtype)
    found = check_convolution(*operands, **parts, **given)
    assert max(found[:3]) < 0.7
    for name in ("y", "dx", "dw"):
        scale = 0.3 * np.abs(parts[name]).max()
        for place in np.random.default_rng(1).choice(parts[name].size, 5):
            wrong = parts[name].copy()
            wrong.flat[place] += scale
            scores = check_convolution(*operands, **(parts | {name: wrong}), **given)
            assert getattr(scores, name) > 1, (name, place)


@pytest.mark.parametrize("kind", [heavy_tailed, positive, equal, mixed_scales])
@pytest.mark.parametrize("dtype", TYPES)
def test_no_operands_make_a_right_convolution_look_wrong(kind, dtype):
    for number, (shape, outputs, kernel_size, how) in enumerate(SHAPES.values()):
        with np.errstate(over="ignore", invalid="ignore"):
            operands, parts, given = made(kind, shape, outputs, kernel_size, how, dtype, number)
            assert not any(score > 1 for score in check_convolution(*operands, **parts, **given)[:3])


@pytest.mark.parametrize("name", ["y", "dx", "dw"])
def test_a_result_that_is_not_finite_is_wrong_and_one_of_operands_that_are_not_says_nothing(name):
    operands, parts, given = made(normal, *SHAPES["padded"], "float32")
    wrong = parts[name].copy()
    wrong.flat[3] = np.nan
    assert getattr(check_convolution(*operands, **(parts | {name: wrong}), **given), name) > 1
    operands[0].fill(np.inf)
    operands[1].fill(np.inf)
    assert np.isnan(getattr(check_convolution(*operands, **parts, **given), name))


def test_same_padding_follows_from_the_shape_of_the_output():
    operands, parts, given = made(
        normal, (2, 3, 6, 7), 4, (3, 4), {"padding": (0, 1), "after": (1, 2), "stride": (2, 1)}, "float32"
    )
    assert max(check_convolution(*operands, **parts, **(given | {"padding": "same"}))[:3]) < 1
    assert max(check_convolution(*operands, **parts, **(given | {"padding": (1, 1)}))[:3]) > 1


def test_what_does_not_fit_is_an_error_that_names_it():
    x, w = np.ones((1, 2, 3, 3), np.float32), np.ones((1, 2, 2, 2), np.float32)
    with pytest.raises(ConfigError, match=r"x \[1, 2, 3, 3\], w \[1, 2, 2, 2\], y \[1, 2, 2, 2\]"):
        check_convolution(x, w, y=np.ones((1, 2, 2, 2), np.float32))
    with pytest.raises(ConfigError, match="x has the value 'int32"):
        check_convolution(x.astype(np.int32), w)
    with pytest.raises(ConfigError, match="dtype has the value 'half'"):
        check_convolution(x, w, dtype="half")

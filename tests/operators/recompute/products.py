"""Products of numbers of every kind, as a processor makes them."""

import numpy as np

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

"""What a device under test computes, and the answers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from mindspore import nn, ops

__all__ = ["WORKLOADS", "StressWork", "Task"]

_KEPT = 2  # tasks of products, whose answers take a second to find
_UNIT = 2.0**-24  # largest relative error of one rounding to float32
_EXPONENTIAL = 2.0**-16  # the same of an exponential, which vector units approximate; on the CPU 2**-17.5 down to -8
_SIZE = 512  # of the square matrices in float32; their integers go to 181, and 512 * 181**2 < 2**24
_HALF_SIZE = 256  # in float16; the integers go to 2, and 256 * 2**2 < 2**11
_HEADS, _SEQUENCE, _WIDTH = 8, 128, 64
_ELEMENTS = (256, 256)  # of a reduction; the integers go to 11, and 2**16 * 11**2 < 2**24


class Task(NamedTuple):
    """One set of numbers.

    Attributes:
        inputs: What the network is given.
        answers: What its outputs must be, float64 of their shapes; names are those of the workload's `outputs`.
        bounds: How far an output may be from its answer: 0, or an array of its shape.
    """

    inputs: tuple[np.ndarray, ...]
    answers: tuple[np.ndarray, ...]
    bounds: tuple[np.ndarray | float, ...]


@dataclass(frozen=True)
class StressWork:
    """One kind of work.

    Attributes:
        name: For example `matmul_float32`.
        outputs: Names of what it computes.
        build: Makes the network.
        task: Makes the numbers of a seed.
    """

    name: str
    outputs: tuple[str, ...]
    build: Callable[[], nn.Cell]
    task: Callable[[int], Task]


class _Linear(nn.Cell):
    """The three products of a linear layer: forward, gradient of its input, gradient of its weight."""

    def construct(self, x, w, g):
        return ops.matmul(x, w), ops.matmul(g, w.swapaxes(0, 1)), ops.matmul(x.swapaxes(0, 1), g)


class _Attention(nn.Cell):
    def construct(self, q, k, v):
        scores = ops.matmul(q, k.swapaxes(-1, -2)) * _WIDTH**-0.5
        return (ops.matmul(ops.softmax(scores, -1), v),)


class _Reduction(nn.Cell):
    def construct(self, x):
        return x.sum(0), x.sum(1), (x * x).sum(), ops.abs(x).max()


def _products(dtype: type, size: int, largest: int) -> Callable[[int], Task]:
    @functools.lru_cache(_KEPT)
    def task(seed: int) -> Task:
        random = np.random.default_rng(seed)
        x, w, g = (random.integers(-largest, largest, (size, size), endpoint=True) for _ in range(3))
        answers = x @ w, g @ w.T, x.T @ g
        return _exact((x, w, g), answers, dtype)

    return task


def _attention(seed: int) -> Task:
    random = np.random.default_rng(seed)
    shape = (_HEADS, _SEQUENCE, _WIDTH)
    q, k, v = (random.integers(-largest, largest, shape, endpoint=True) for largest in (2, 2, 100))
    scores = (q @ k.swapaxes(1, 2)) * _WIDTH**-0.5  # exact, in float32 as well: the root is a power of two
    share = np.exp(scores - scores.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    # First order in the unit: an exponential above and one in the sum below, the sum, the division, the products and
    # their sum. Each is at most relative to the sum of the absolute terms.
    bound = (2 * _EXPONENTIAL + (2 * _SEQUENCE + 4) * _UNIT) * (share @ np.abs(v))
    inputs = tuple(each.astype(np.float32) for each in (q, k, v))
    return Task(inputs, (share @ v,), (bound,))


def _reduction(seed: int) -> Task:
    x = np.random.default_rng(seed).integers(-11, 11, _ELEMENTS, endpoint=True)
    return _exact((x,), (x.sum(0), x.sum(1), (x * x).sum(), np.abs(x).max()), np.float32)


def _exact(inputs: tuple[np.ndarray, ...], answers: tuple[np.ndarray, ...], dtype: type) -> Task:
    return Task(
        tuple(each.astype(dtype) for each in inputs),
        tuple(np.asarray(each, np.float64) for each in answers),
        (0.0,) * len(answers),
    )


_PRODUCTS = ("forward", "input_gradient", "weight_gradient")
WORKLOADS = (
    StressWork("matmul_float32", _PRODUCTS, _Linear, _products(np.float32, _SIZE, 181)),
    StressWork("matmul_float16", _PRODUCTS, _Linear, _products(np.float16, _HALF_SIZE, 2)),
    StressWork("attention_float32", ("output",), _Attention, _attention),
    StressWork("reduction_float32", ("sum_0", "sum_1", "sum_of_squares", "max"), _Reduction, _reduction),
)
"""Everything a test does, in its order."""

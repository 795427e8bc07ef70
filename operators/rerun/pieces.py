"""Table of known-answer tests: products, convolutions, and the vector operators that trainings use."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, ops
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.names import find
from asd.operators.rerun.work import BLOCK, Factors, Product, Test, Work

Array = Any
_CAST, _TILE, _TRANSPOSE = P.Cast(), P.Tile(), P.Transpose()
_CONV, _INPUT_OF = P.Conv2D(4, 3), P.Conv2DBackpropInput(4, 3, "valid")
_TWO = Tensor(2.0, ms.float32)
_IMAGE, _FILTERS, _SLOPE = (63, 8, 8), (4, 63, 3, 3), (4, 6, 6)


def _backward(name: str, *settings: Any) -> Callable[..., Any]:
    """Returns an operator of backward passes, which MindSpore keeps under a private name; found at the first call."""
    made = functools.cache(lambda: getattr(find("_grad_ops"), name)(*settings))
    return lambda *operands: made()(*operands)


_FILTER_OF = _backward("Conv2DBackpropFilter", 4, 3, "valid")
_SLOPE_OF_NORM = _backward("LayerNormGrad", 2, 2)
_SLOPE_OF_BIAS = _backward("BiasAddGrad")
FACTORS = {
    "float32": Factors(ms.float32, 127, 15, 8, 1024, (-20, 20)),
    "bfloat16": Factors(ms.bfloat16, 4, 1, 2, 32, (-20, 20)),
    "float16": Factors(ms.float16, 4, 2, 4, 64, (-7, 2)),
    "bfloat16, long sums": Factors(ms.bfloat16, 127, 15, 8, 1024, (-20, 20), long=True),
    "float16, long sums": Factors(ms.float16, 7, 3, 2, 1024, (-7, 0), long=True),
}
"""Products of each are at most 2^24 in float32, 256 in bfloat16 and 2,048 in float16; the long ones 2^24 and 65,504."""


def _by_batch(a: Tensor, b: Tensor) -> Tensor:
    found = P.BatchMatMul()(a.reshape((3, -1, a.shape[1])), _TILE(b.reshape((1, *b.shape)), (3, 1, 1)))
    return found.reshape((a.shape[0], b.shape[1]))


_PRODUCTS: Sequence[tuple[str, Callable[[Tensor, Tensor], Tensor]]] = (
    ("MatMul", P.MatMul()),
    ("matmul", mint.matmul),
    ("MatMul of right transposed", lambda a, b: P.MatMul(False, True)(a, _TRANSPOSE(b, (1, 0)))),
    ("MatMul of left transposed", lambda a, b: P.MatMul(True, False)(_TRANSPOSE(a, (1, 0)), b)),
    ("BatchMatMul", _by_batch),
    ("dense", lambda a, b: ops.dense(a, _TRANSPOSE(b, (1, 0)))),
)


def blocks() -> dict[str, Array]:
    """Returns the operands of vector operators: integers times powers of two, as sums and products of them are exact.

    Returns:
        `x` and `y` of 12 bits; `l` and `g` of 22; `C`, one row of these; `w`, of at most 127 and unscaled; `d`, `n` and
        `s` from -8 to 8, `n` with rows that vary; `p`, positive; `V`, one row; `I`, row numbers; `m`, a mask; `e`,
        images; `F`, filters; `o`, slopes of convolutions.
    """
    random = np.random.default_rng(1)
    powers = np.exp2(random.integers(-10, 6, BLOCK[1]))

    def whole(most: int, *shape: int) -> Array:
        return random.integers(1, most + 1, shape) * random.choice((-1, 1), shape)

    made = {
        **{each: whole(4095, *BLOCK) * powers for each in "xy"},
        **{each: whole(2**22 - 1, *BLOCK) * powers for each in "lg"},
        "C": whole(2**22 - 1, BLOCK[1]) * powers,
        "w": whole(127, *BLOCK),
        **{each: random.uniform(-8, 8, BLOCK) for each in "sd"},
        "n": random.uniform(-1, 1, BLOCK) + np.linspace(-2, 2, BLOCK[1]),
        "p": np.exp2(random.uniform(-6, 6, BLOCK)),
        "V": random.uniform(-2, 2, BLOCK[1]),
        "e": whole(15, *_IMAGE),
        "F": whole(3, *_FILTERS),
        "o": whole(3, *_SLOPE),
    }
    return {each: numbers.astype(np.float32) for each, numbers in made.items()} | {
        "I": random.permutation(BLOCK[0]).astype(np.int32),
        "m": random.random(BLOCK) < 1 / 3,
    }


def _in(kind: Any, operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *operands: operator(*(_CAST(each, kind) for each in operands))


def _flat(x: Tensor) -> Tensor:
    return x.reshape((-1, x.shape[-1]))


def _slope(s: Array, d: Array) -> Array:
    return d * (1 + s * s)


def _softmax(x: Array) -> Array:
    found = np.exp(x - x.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def _normed(n: Array, v: Array) -> Array:
    return (n - n.mean(-1, keepdims=True)) / n.std(-1, keepdims=True) * v + v


def _norm_gradient(n: Array, v: Array) -> Array:
    normed = _normed(n, np.ones(1)) - 1
    return (v - v.mean() - normed * (v * normed).mean(-1, keepdims=True)) / n.std(-1, keepdims=True)


def _layer_norm(n: Tensor, v: Tensor) -> Tensor:
    return P.LayerNorm(2, 2, 1e-12)(n, v, v)[0]


def _layer_gradient(n: Tensor, v: Tensor) -> Tensor:
    _, mean, variance = P.LayerNorm(2, 2, 1e-12)(n, v, v)
    return _SLOPE_OF_NORM(n, P.OnesLike()(n), variance, mean, v)[0]


def _segments(w: Tensor, i: Tensor) -> Tensor:
    return P.UnsortedSegmentSum()(w, _TILE(i.reshape((1, -1)), (w.shape[0], 1)), BLOCK[0])


def _by_segment(w: Array, i: Array) -> Array:
    found = np.zeros(BLOCK)
    np.add.at(found, i, w.sum(0))
    return found


def _windows(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))  # type: ignore[call-overload, no-any-return]


def _of_input(o: Array, f: Array) -> Array:
    padded = np.pad(o, ((0, 0), (0, 0), (2, 2), (2, 2)))
    return np.einsum("noijkl,ockl->ncij", _windows(padded), f[:, :, ::-1, ::-1])


def _of_filter(o: Array, e: Array) -> Array:
    return np.einsum("ncijkl,noij->ockl", _windows(e[:1]), o[:1]) * len(e)


PIECES: Mapping[str, Sequence[Test]] = {
    "products": [
        Product(f"{name}, {kind}", FACTORS[kind], compute, f"products of {kind.partition(',')[0]}")
        for name, compute in _PRODUCTS
        for kind in (FACTORS if name == "MatMul" else ("float32", "bfloat16"))
    ],
    "sums": (
        Work("Add", "lg", P.Add(), np.add),
        Work("Sub", "lg", P.Sub(), np.subtract),
        Work("AddN", "xyg", lambda *terms: P.AddN()(list(terms)), lambda *terms: sum(terms)),
        Work("BiasAdd", "lC", lambda x, c: P.BiasAdd()(_flat(x), c).reshape(x.shape), np.add),
        Work("Add, float16", "ww", _in(ms.float16, P.Add()), np.add),
        Work("add", "lg", mint.add, np.add),
        Work("sub", "lg", mint.sub, np.subtract),
        Work("Neg", "l", P.Neg(), np.negative),
        Work("Abs", "l", P.Abs(), np.abs),
    ),
    "factors": (
        Work("Mul", "xy", P.Mul(), np.multiply),
        Work("Div", "xp", P.Div(), np.divide, size=True),
        Work("RealDiv", "xp", P.RealDiv(), np.divide, size=True),
        Work("Square", "x", P.Square(), np.square),
        Work("Mul, bfloat16", "ee", _in(ms.bfloat16, P.Mul()), np.multiply),
        Work("Maximum", "lg", P.Maximum(), np.maximum),
        Work("Pow", "p", lambda p: P.Pow()(p, _TWO), np.square, size=True),
        Work("Sqrt", "p", P.Sqrt(), np.sqrt, size=True),
        Work("Rsqrt", "p", P.Rsqrt(), lambda p: p**-0.5, size=True),
        Work("Reciprocal", "p", P.Reciprocal(), np.reciprocal, size=True),
    ),
    "functions": (
        Work("Exp", "s", P.Exp(), np.exp, size=True),
        Work("Log", "p", P.Log(), np.log, lambda p: 1 + np.abs(np.log(p))),
        Work("Sigmoid", "s", P.Sigmoid(), lambda s: 1 / (1 + np.exp(-s)), size=True),
        Work("Tanh", "s", P.Tanh(), np.tanh, np.ones_like),
        Work("ReLU", "l", P.ReLU(), lambda x: np.maximum(x, 0)),
        Work("ReluGrad", "lg", _backward("ReluGrad"), lambda x, y: np.where(y > 0, x, 0)),
        Work("SigmoidGrad", "sd", _backward("SigmoidGrad"), lambda s, d: d * s * (1 - s), _slope),
        Work("TanhGrad", "sd", _backward("TanhGrad"), lambda s, d: d * (1 - s * s), _slope),
        Work("RsqrtGrad", "pd", _backward("RsqrtGrad"), lambda p, d: -0.5 * d * p**3, size=True),
    ),
    "norms": (
        Work("Softmax", "s", P.Softmax(), _softmax, size=True),
        Work("LayerNorm", "nV", _layer_norm, _normed, lambda n, v: 8 * v + 0 * n),
        Work("LayerNormGrad", "nV", _layer_gradient, _norm_gradient, lambda n, v: 32 * abs(v).max() + 0 * n),
    ),
    "reductions": (
        Work("ReduceSum of columns", "w", lambda w: P.ReduceSum()(w, 0), lambda w: w.sum(0), sums=True),
        Work("ReduceSum of rows", "w", lambda w: P.ReduceSum()(w, 2), lambda w: w.sum(2)),
        Work("ReduceMean", "p", lambda p: P.ReduceMean()(p, 2), lambda p: p.mean(2), size=True),
        Work("L2Loss", "p", lambda p: P.L2Loss()(p), lambda p: np.full(2, np.sum(p * p) / 2), size=True, sums=True),
        Work("ReduceMax", "x", lambda x: P.ReduceMax()(x, 2), lambda x: x.max(2)),
        Work("BiasAddGrad", "w", lambda w: _SLOPE_OF_BIAS(_flat(w)), lambda w: w.sum((0, 1)), sums=True),
        Work("ReduceSum of int32", "w", lambda w: P.ReduceSum()(_CAST(w, ms.int32), 0), lambda w: w.sum(0), sums=True),
    ),
    "moves": (
        Work("Cast to float16", "w", lambda w: _CAST(w, ms.float16), np.positive),
        Work("Cast to bfloat16", "w", lambda w: _CAST(w, ms.bfloat16), np.positive),
        Work("Transpose", "l", lambda x: _TRANSPOSE(x.reshape((len(x), -1)), (1, 0)), lambda x: x.reshape(1, -1).T),
        Work("Concat", "lg", lambda x, y: P.Concat(1)([x, y]), lambda x, y: np.concatenate([x, y], 1)),
        Work("Split", "l", lambda x: P.Split(1, 3)(x)[1], lambda x: x[:, 21:42]),
        Work("StridedSlice", "l", lambda x: x[:, 1::2, 2::3], lambda x: x[:, 1::2, 2::3]),
        Work("Slice", "l", lambda x: P.Slice()(x, (0, 1, 2), (len(x), 31, 16)), lambda x: x[:, 1:32, 2:18]),
        Work("Tile", "l", lambda x: _TILE(x, (1, 1, 2)), lambda x: np.tile(x, (1, 1, 2))),
        Work("Gather", "lI", lambda x, i: P.Gather()(x, i, 1), lambda x, i: x[:, i]),
        Work("Select", "mlg", P.Select(), np.where),
        Work("MaskedFill", "lm", lambda x, m: P.MaskedFill()(x, m, _TWO), lambda x, m: np.where(m, 2, x)),
        Work("UnsortedSegmentSum", "wI", _segments, _by_segment, sums=True),
    ),
    "convolutions": (
        Work("Conv2D", "eF", _CONV, lambda e, f: np.einsum("ncijkl,ockl->noij", _windows(e), f)),
        Work("Conv2DBackpropInput", "oF", lambda o, f: _INPUT_OF(o, f, (len(o), *_IMAGE)), _of_input),
        Work("Conv2DBackpropFilter", "oe", lambda o, e: _FILTER_OF(o, e, _FILTERS), _of_filter, sums=True),
    ),
}
"""Known-answer tests by kind of work; the most frequent work of trainings comes first in each kind."""

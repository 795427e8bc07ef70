"""Table of known-answer tests: products, convolutions, and the vector operators that trainings use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, ops
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.names import find
from asd.operators.rerun.work import Work

Array = Any
_SUM, _ROUGH, _PRODUCT, _HALF = 64.0, 2.0**13, 2.0**15, 2.0**18
"""Last places that a sum may be off; a function that devices approximate; a product, for which matrix units take 11 of
24 bits where a program allows that, as convolutions do by default; and a sum in half precision."""
_TERMS, _FACTORS = (_SUM, True), (_PRODUCT, True)
_CAST = P.Cast()
_CONV, _INPUT_OF = P.Conv2D(4, 3), P.Conv2DBackpropInput(4, 3, "valid")
_IMAGES, _FILTERS, _EDGE = (8, 4, 8, 8), (4, 4, 3, 3), 6


def _backward(name: str, *settings: Any) -> Callable[..., Any]:
    """Returns an operator of backward passes, which MindSpore keeps under a private name; found at the first call."""
    made = functools.cache(lambda: getattr(find("_grad_ops"), name)(*settings))
    return lambda *operands: made()(*operands)


_FILTER_OF = _backward("Conv2DBackpropFilter", 4, 3, "valid")
_SLOPE_OF_NORM = _backward("LayerNormGrad", 1, 1)


def _batch(x: Any) -> Any:
    return x.reshape((4, x.shape[0] // 4, x.shape[1]))


def _by_batch(x: Any, y: Any) -> Any:
    return _batch(x) @ _batch(y).swapaxes(1, 2)


def _halves(s: Tensor, n: Tensor) -> Tensor:
    return _CAST(P.MatMul(False, True)(_CAST(s, ms.float16), _CAST(n, ms.float16)), ms.float32)


def _as_halves(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float64)


def _of_halves(s: Array, n: Array) -> Array:
    return _as_halves(s) @ _as_halves(n).T


def _softmax(x: Array) -> Array:
    found = np.exp(x - x.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def _normed(n: Array, v: Array) -> Array:
    return (n - n.mean(-1, keepdims=True)) / n.std(-1, keepdims=True) * v + v


def _norm_gradient(n: Array, v: Array) -> Array:
    normed = _normed(n, np.ones(1)) - 1
    along = normed * (v * normed).mean(-1, keepdims=True)
    return (v - v.mean() - along) / n.std(-1, keepdims=True)


def _layer_norm(n: Tensor, v: Tensor) -> Tensor:
    return P.LayerNorm(1, 1, 1e-12)(n, v, v)[0]


def _layer_gradient(n: Tensor, v: Tensor) -> Tensor:
    _, mean, variance = P.LayerNorm(1, 1, 1e-12)(n, v, v)
    return _SLOPE_OF_NORM(n, P.OnesLike()(n), variance, mean, v)[0]


def _by_segment(x: Array, i: Array) -> Array:
    found = np.zeros_like(x)
    np.add.at(found, i, x)
    return found


def _image(x: Any) -> Any:
    return x.reshape(-1)[:2048].reshape(_IMAGES)


def _filter(b: Any) -> Any:
    return b.reshape(-1)[:144].reshape(_FILTERS)


def _slope(d: Any) -> Any:
    return d.reshape(-1)[: 32 * _EDGE**2].reshape((8, 4, _EDGE, _EDGE))


def _windows(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))  # type: ignore[call-overload, no-any-return]


def _convolved(x: Array, b: Array) -> Array:
    return np.einsum("ncijkl,ockl->noij", _windows(_image(x)), _filter(b))


def _of_input(d: Array, b: Array) -> Array:
    padded = np.pad(_slope(d), ((0, 0), (0, 0), (2, 2), (2, 2)))
    return np.einsum("noijkl,ockl->ncij", _windows(padded), _filter(b)[:, :, ::-1, ::-1])


def _of_filter(d: Array, x: Array) -> Array:
    return np.einsum("ncijkl,noij->ockl", _windows(_image(x)), _slope(d))


PIECES: Mapping[str, Sequence[Work]] = {
    "products": (
        Work("MatMul of integers", "jk", P.MatMul(), np.matmul, 0.0),
        Work("MatMul", "ab", P.MatMul(), np.matmul, *_FACTORS),
        Work("MatMul of left transposed", "ax", P.MatMul(True, False), lambda a, x: a.T @ x, *_FACTORS),
        Work("MatMul of right transposed", "xy", P.MatMul(False, True), lambda x, y: x @ y.T, *_FACTORS),
        Work("BatchMatMul", "xy", _by_batch, _by_batch, *_FACTORS),
        Work("matmul", "jk", mint.matmul, np.matmul, 0.0),
        Work("dense", "xy", ops.dense, lambda x, y: x @ y.T, *_FACTORS),
        Work("MatMul of halves", "sn", _halves, _of_halves, _HALF, lambda s, n: abs(s) @ abs(n).T + 1e-4),
    ),
    "sums": (
        Work("Add", "xy", P.Add(), np.add),
        Work("Sub", "xy", P.Sub(), np.subtract),
        Work("AddN", "xyd", lambda *terms: P.AddN()(list(terms)), lambda *terms: sum(terms), size=True),
        Work("BiasAdd", "xv", P.BiasAdd(), np.add),
        Work("add", "xy", mint.add, np.add),
        Work("sub", "xy", mint.sub, np.subtract),
        Work("Neg", "x", P.Neg(), np.negative),
        Work("Abs", "x", P.Abs(), np.abs),
    ),
    "factors": (
        Work("Mul", "xy", P.Mul(), np.multiply),
        Work("Div", "xp", P.Div(), np.divide, _SUM),
        Work("RealDiv", "xp", P.RealDiv(), np.divide, _SUM),
        Work("Square", "x", P.Square(), np.square),
        Work("Maximum", "xy", P.Maximum(), np.maximum),
        Work("Pow", "p", lambda p: P.Pow()(p, 2.0), np.square, _ROUGH),
        Work("Sqrt", "p", P.Sqrt(), np.sqrt, _SUM),
        Work("Rsqrt", "p", P.Rsqrt(), lambda p: p**-0.5, _ROUGH),
        Work("Reciprocal", "p", P.Reciprocal(), np.reciprocal, _SUM),
    ),
    "functions": (
        Work("Exp", "s", P.Exp(), np.exp, _ROUGH),
        Work("Log", "p", P.Log(), np.log, _ROUGH, lambda p: 1 + np.abs(np.log(p))),
        Work("Sigmoid", "s", P.Sigmoid(), lambda s: 1 / (1 + np.exp(-s)), _ROUGH),
        Work("Tanh", "s", P.Tanh(), np.tanh, _ROUGH, np.ones_like),
        Work("ReLU", "x", P.ReLU(), lambda x: np.maximum(x, 0)),
        Work("ReluGrad", "xy", _backward("ReluGrad"), lambda x, y: np.where(y > 0, x, 0)),
        Work(
            "SigmoidGrad",
            "sd",
            _backward("SigmoidGrad"),
            lambda s, d: d * s * (1 - s),
            _SUM,
            lambda s, d: d * (1 + s * s),
        ),
        Work("TanhGrad", "sd", _backward("TanhGrad"), lambda s, d: d * (1 - s * s), _SUM, lambda s, d: d * (1 + s * s)),
        Work("RsqrtGrad", "pd", _backward("RsqrtGrad"), lambda p, d: -0.5 * d * p**3, _SUM),
    ),
    "norms": (
        Work("Softmax", "s", P.Softmax(), _softmax, _ROUGH),
        Work("LayerNorm", "nv", _layer_norm, _normed, _ROUGH, lambda n, v: 8 * v + 0 * n),
        Work("LayerNormGrad", "nv", _layer_gradient, _norm_gradient, _ROUGH, lambda n, v: 32 * abs(v).max() + 0 * n),
    ),
    "reductions": (
        Work("ReduceSum of columns", "x", lambda x: P.ReduceSum()(x, 0), lambda x: x.sum(0), *_TERMS),
        Work("ReduceSum of rows", "x", lambda x: P.ReduceSum()(x, 1), lambda x: x.sum(1), *_TERMS),
        Work("ReduceMean", "x", lambda x: P.ReduceMean()(x, 1), lambda x: x.mean(1), *_TERMS),
        Work("L2Loss", "x", P.L2Loss(), lambda x: np.sum(x * x) / 2, *_FACTORS),
        Work("ReduceMax", "x", lambda x: P.ReduceMax()(x, 1), lambda x: x.max(1)),
        Work("BiasAddGrad", "x", _backward("BiasAddGrad"), lambda x: x.sum(0), *_TERMS),
    ),
    "moves": (
        Work("Cast", "x", lambda x: _CAST(_CAST(x, ms.float16), ms.float32), _as_halves),
        Work("Transpose", "x", lambda x: P.Transpose()(x, (1, 0)), np.transpose),
        Work("Concat", "xy", lambda x, y: P.Concat()([x, y]), lambda x, y: np.concatenate([x, y])),
        Work("Split", "x", lambda x: P.Split(0, 2)(x)[1], lambda x: x[len(x) // 2 :]),
        Work("StridedSlice", "x", lambda x: x[1::2, 2::3], lambda x: x[1::2, 2::3]),
        Work("Slice", "x", lambda x: P.Slice()(x, (1, 2), (8, 16)), lambda x: x[1:9, 2:18]),
        Work("Tile", "x", lambda x: P.Tile()(x, (1, 2)), lambda x: np.tile(x, (1, 2))),
        Work("Gather", "xi", lambda x, i: P.Gather()(x, i, 0), lambda x, i: x[i]),
        Work("Select", "mxy", P.Select(), np.where),
        Work("MaskedFill", "xm", lambda x, m: P.MaskedFill()(x, m, 0.5), lambda x, m: np.where(m, 0.5, x)),
        Work("UnsortedSegmentSum", "xi", lambda x, i: P.UnsortedSegmentSum()(x, i, x.shape[0]), _by_segment, *_TERMS),
    ),
    "convolutions": (
        Work("Conv2D", "xb", lambda x, b: _CONV(_image(x), _filter(b)), _convolved, *_FACTORS),
        Work("Conv2DBackpropInput", "db", lambda d, b: _INPUT_OF(_slope(d), _filter(b), _IMAGES), _of_input, *_FACTORS),
        Work(
            "Conv2DBackpropFilter", "dx", lambda d, x: _FILTER_OF(_slope(d), _image(x), _FILTERS), _of_filter, *_FACTORS
        ),
    ),
}
"""Known-answer tests by kind of work; the most frequent work of trainings comes first in each kind."""

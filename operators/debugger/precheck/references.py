"""Own references, for what has no float64 kernel on the CPU or no kernel at all."""
# ruff: noqa: FBT002 - the signatures are MindSpore's

import itertools
import math
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

CONVERSIONS = frozenset(
    "astype to cast type_as half float double bfloat16 int long short byte bool Cast".split()  # noqa: SIM905
)
"""Names of APIs and operators that only change the type; NumPy does the same, exactly."""


def _gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + ops.erf(x / math.sqrt(2.0)))


def _axes(x, dim):
    return tuple(range(x.ndim)) if dim is None else dim if isinstance(dim, tuple) else (dim,)


def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    centred = x - x.mean(axes, keep_dims=True)
    normal = centred / ops.sqrt((centred * centred).mean(axes, keep_dims=True) + eps)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def _rms_norm(x, gamma, epsilon=1e-6):
    return x / ops.sqrt((x * x).mean(tuple(range(x.ndim - gamma.ndim, x.ndim)), keep_dims=True) + epsilon) * gamma


def _logsumexp(x, dim, keepdim=False):
    axes = _axes(x, dim)
    # The largest is a constant here: its share of the gradient cancels.
    largest = ops.stop_gradient(x.max(axes, keepdims=True))
    total = ops.log(ops.exp(x - largest).sum(axes, keepdims=True)) + largest
    return total if keepdim else total.squeeze(axes)


def _log_softmax(x, dim=-1):
    return x - _logsumexp(x, dim, keepdim=True)


def _reduced(x, reduction):
    return x if reduction == "none" else x.sum() if reduction == "sum" else x.mean()


def _mse_loss(x, target, reduction="mean"):
    return _reduced((x - target) * (x - target), reduction)


def _picked(x, target):
    """Returns one element of each row."""
    hot = np.zeros(x.shape)
    hot[np.arange(x.shape[0]), target.asnumpy()] = 1.0
    return (x * Tensor(hot, x.dtype)).sum(1)


def _cross_entropy(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    classes = target.asnumpy()
    if x.ndim != 2 or classes.ndim != 1 or weight is not None or label_smoothing or (classes == ignore_index).any():
        raise ValueError("cross_entropy has a reference only for plain classes")
    return _reduced(-_picked(_log_softmax(x, 1), target), reduction)


def _var(x, dim=None, *, correction=1, keepdim=False):
    axes = _axes(x, dim)
    count = math.prod(x.shape[axis] for axis in axes)
    centred = x - x.mean(axes, keep_dims=True)
    return (centred * centred).sum(axes, keepdims=keepdim) / max(0, count - correction)


def _std(x, dim=None, *, correction=1, keepdim=False):
    return ops.sqrt(_var(x, dim, correction=correction, keepdim=keepdim))


def _norm(x, p="fro", dim=None, keepdim=False):
    if p not in ("fro", 2, 2.0, None):
        raise ValueError("norm has a reference only for the norm 2")
    return ops.sqrt((x * x).sum(_axes(x, dim), keepdims=keepdim))


def _tril(x, diagonal=0):
    return x * Tensor(np.tril(np.ones(x.shape[-2:]), diagonal), x.dtype)


def _triu(x, diagonal=0):
    return x * Tensor(np.triu(np.ones(x.shape[-2:]), diagonal), x.dtype)


def _embedding(ids, weight):
    return ops.gather(weight, ids, 0)


def _index_select(x, dim, index):
    return ops.gather(x, index, dim)


def _sort(x, dim=-1, descending=False, stable=False):
    return ops.sort(x, axis=dim, descending=descending)


def _stack(tensors, dim=0):
    return ops.stack(tensors, dim)


def _cumsum(x, dim):
    return ops.cumsum(x, dim)


def _sizes(value, count):
    """Returns a stride or the like of each dimension, without those of batch and channel."""
    return (value,) * count if isinstance(value, int) else tuple(value)[-count:]


def _same(size, kernel, stride, dilation):
    """Returns what `same` puts before and after a dimension."""
    total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def _convolution(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """A sum over the places of the kernel: of each a product of matrices."""
    kernel, count = weight.shape[2:], weight.ndim - 2
    if x.ndim != count + 2:
        raise ValueError("a convolution has a reference only for batches")
    stride, dilation = _sizes(stride, count), _sizes(dilation, count)
    if padding == "same":
        padding = [_same(*each) for each in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    elif not isinstance(padding, list):
        padding = [(each, each) for each in _sizes(0 if padding == "valid" else padding, count)]
    for axis, edges in enumerate(padding, 2):
        before, after = (ops.zeros((*x.shape[:axis], each, *x.shape[axis + 1 :]), x.dtype) for each in edges)
        x = ops.concat([part for part in (before, x, after) if part.size], axis)
    many = [(x.shape[i + 2] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1 for i in range(count)]
    result: Any = 0
    for place in itertools.product(*map(range, kernel)):
        part, of_place = x, weight
        for i, at in enumerate(place):
            picked = np.arange(many[i]) * stride[i] + at * dilation[i]
            part, of_place = ops.gather(part, Tensor(picked, ms.int32), i + 2), of_place[:, :, at]
        part = part.reshape((x.shape[0], groups, weight.shape[1], math.prod(many)))
        result = result + ops.matmul(of_place.reshape((1, groups, weight.shape[0] // groups, weight.shape[1])), part)
    result = result.reshape((x.shape[0], weight.shape[0], *many))
    return result if bias is None else result + bias.reshape((1, -1) + (1,) * count)


def _ops_convolution(x, weight, bias=None, stride=1, pad_mode="valid", padding=0, dilation=1, groups=1):
    return _convolution(x, weight, bias, stride, padding if pad_mode == "pad" else pad_mode, dilation, groups)


_MINT = (_cumsum, _index_select, _logsumexp, _norm, _sort, _stack, _std, _tril, _triu, _var)
_MINT_FUNCTIONAL = (_cross_entropy, _embedding, _gelu, _layer_norm, _log_softmax, _mse_loss)
REFERENCES: dict[str, Callable[..., Any]] = {
    **{f"Mint.{each.__name__[1:]}": each for each in _MINT},
    **{f"MintFunctional.{each.__name__[1:]}": each for each in _MINT_FUNCTIONAL},
    **{f"MintFunctional.conv{count}d": _convolution for count in (1, 2, 3)},
    **{f"Functional.conv{count}d": _ops_convolution for count in (1, 2, 3)},
    "Mint.argmax": ops.argmax,
    "Mint.topk": ops.topk,
    "Functional.embedding": _embedding,
    "Functional.layer_norm": _layer_norm,
    "Functional.rms_norm": _rms_norm,
}
"""By the name of the API without its number."""


def _layer_norm_operator(attributes: dict[str, Any]) -> Callable[..., Any]:
    begin, params, eps = (
        attributes.get(key, default)
        for key, default in (("begin_norm_axis", 1), ("begin_params_axis", 1), ("epsilon", 1e-7))
    )

    def normalise(x, gamma, beta):
        axes = tuple(range(begin % x.ndim, x.ndim))
        if begin % x.ndim != params % x.ndim:
            raise ValueError("LayerNorm has a reference only for one axis of both kinds")
        mean = x.mean(axes, keep_dims=True)
        variance = ((x - mean) * (x - mean)).mean(axes, keep_dims=True)
        return (x - mean) / ops.sqrt(variance + eps) * gamma + beta, mean, variance

    return normalise


def _sparse_softmax_cross_entropy(attributes: dict[str, Any]) -> Callable[..., Any]:
    if attributes.get("is_grad"):
        raise ValueError("SparseSoftmaxCrossEntropyWithLogits has a reference only without is_grad")

    def loss(x, labels):
        return -_picked(_log_softmax(x, 1), labels).mean()

    return loss


def _convolution_operator(attributes: dict[str, Any]) -> Callable[..., Any]:
    if attributes.get("data_format", "NCHW") not in ("NCHW", 0) or attributes.get("mode", 1) != 1:
        raise ValueError("Conv2D has a reference only for the format NCHW and plain kernels")
    mode, pad = attributes.get("pad_mode", "valid"), attributes.get("pad", 0)
    mode = str({0: "pad", 1: "same", 2: "valid"}.get(mode, mode)).lower()
    pads = [tuple(pad[:2]), tuple(pad[2:])] if isinstance(pad, (list, tuple)) else [(pad, pad)] * 2
    stride, dilation, groups = (attributes.get(key, 1) for key in ("stride", "dilation", "group"))

    def convolve(x, weight):
        return _convolution(x, weight, None, stride, pads if mode == "pad" else mode, dilation, groups)

    return convolve


PRIMITIVES: dict[str, Callable[[dict[str, Any]], Callable[..., Any]]] = {
    "Conv2D": _convolution_operator,
    "LayerNorm": _layer_norm_operator,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_softmax_cross_entropy,
}
"""By class of an operator: makes its reference from the operator's settings."""

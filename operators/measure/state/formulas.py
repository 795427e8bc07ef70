"""An optimizer's update of a few elements, computed again in float64 from what it had before and the gradient.

The formulas are those of `mindspore.nn`: Adam without AMSGrad (Kingma and Ba 2015, with the bias in the learning rate),
AdamWeightDecay (decay beside the gradient, no correction of bias), Momentum and SGD (Nesterov or not). Moments are
compared with what they must be. The step of a weight is compared in direction: the learning rate, which schedules and
callbacks change, is what most of the elements of the same step moved by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor, nn

from asd.operators.private.class_swap import stock_class

__all__ = ["Elements", "Formula", "formula_of", "rate_of", "wrong"]

_ROUNDING = 16 * 2.0**-24
"""Of a handful of operations in float32, as a share of the terms that are added."""
_OWN_SHARE = 2e-4
"""Of the gradient's share in a moment: float32(1 - 0.999) is off by so much, as each kernel forms it otherwise."""
_STEP = 0.01
"""Of a weight's step: what is off by less may be the learning rate's own error."""
_TELLING = 4
"""Units in the last place that a hundredth of a step must have, for the step to tell the rate."""
_TINY = 1e-37
"""Kernels flush smaller numbers to zero."""


class Elements(NamedTuple):
    """A few elements of one weight; all arrays float64 of one shape (elements,).

    Attributes:
        gradient: What the optimizer was called with.
        weight: Before the update.
        moments: Before the update, by group.
        new_weight: After it.
        new_moments: After it, by group.
    """

    gradient: np.ndarray
    weight: np.ndarray
    moments: Mapping[str, np.ndarray]
    new_weight: np.ndarray
    new_moments: Mapping[str, np.ndarray]


class Formula(NamedTuple):
    """What an optimizer does to one weight.

    Attributes:
        moments: Of elements and their gradient: by group the two terms of each new moment, the gradient's first.
        direction: Of elements and their gradient: what a weight's step is the learning rate times.
        scale: Gradients are divided by it.
        decay: Weight decay of each of the optimizer's weights.
        beside: Whether decay is added to the direction, and not to the gradient.
    """

    moments: Callable[[Elements, np.ndarray], Mapping[str, tuple[np.ndarray, np.ndarray]]]
    direction: Callable[[Elements, np.ndarray], np.ndarray]
    scale: float
    decay: tuple[float, ...]
    beside: bool = False

    def gradient(self, elements: Elements, decay: float) -> np.ndarray:
        """What moments are made of."""
        gradient = elements.gradient / self.scale
        return gradient if self.beside else gradient + decay * elements.weight

    def step(self, elements: Elements, decay: float) -> np.ndarray:
        """A weight's step, but for the learning rate."""
        direction = self.direction(elements, self.gradient(elements, decay))
        return direction + decay * elements.weight if self.beside else direction


def formula_of(optimizer: nn.Cell) -> Formula | None:
    """What `optimizer` does; None where it is not known."""
    stock = stock_class(optimizer)  # one that is derived from it may clip gradients now and then
    make = _KNOWN.get(stock.__name__) if stock.__module__.startswith("mindspore.nn.optim") else None
    if make is None or not isinstance(optimizer, nn.Optimizer) or optimizer.dynamic_weight_decay:
        return None
    if optimizer.grad_centralization or any(getattr(optimizer, "grad_centralization_flags", ())):
        return None
    return make(optimizer)


def wrong(formula: Formula, elements: Elements, decay: float, rate: float) -> str:
    """What of an update is not what it has to be: the name of a moment, `weight`, or nothing.

    Args:
        formula: What the optimizer does.
        elements: Some of one weight.
        decay: The weight's decay.
        rate: The learning rate, see `rate_of`; `nan` where it can't be told.
    """
    for name, (own, kept) in formula.moments(elements, formula.gradient(elements, decay)).items():
        allowed = _ROUNDING * (np.abs(own) + np.abs(kept)) + _OWN_SHARE * np.abs(own) + _TINY
        if not np.all(np.abs(elements.new_moments[name] - (own + kept)) <= allowed):
            return name
    if np.isnan(rate):
        return ""
    step = rate * formula.step(elements, decay)
    unit = _unit(np.maximum(np.abs(elements.weight), np.abs(elements.new_weight)))
    allowed = 2 * unit + _STEP * np.abs(step) + _TINY
    return "" if np.all(np.abs(elements.new_weight - (elements.weight - step)) <= allowed) else "weight"


def rate_of(formula: Formula, runs: Sequence[tuple[Elements, float]]) -> float:
    """The learning rate of a step: the median of step over direction, each as heavy as it is certain.

    Args:
        formula: What the optimizer does.
        runs: Elements of weights that share a learning rate, each with its decay.

    Returns:
        `nan` where steps are too small beside the rounding of the weights to tell it.
    """
    direction = np.concatenate([formula.step(elements, decay) for elements, decay in runs])
    weight = np.concatenate([elements.weight for elements, _ in runs])
    step = weight - np.concatenate([elements.new_weight for elements, _ in runs])
    usable = (np.abs(direction) > _TINY) & np.isfinite(direction) & np.isfinite(step)
    if not usable.any():
        return np.nan
    ratio = step[usable] / direction[usable]
    certain = np.abs(direction[usable]) / _unit(weight[usable])
    order = np.argsort(ratio)
    middle = int(np.searchsorted(np.cumsum(certain[order]), certain.sum() / 2))
    rate = float(ratio[order][min(middle, ratio.size - 1)])
    return rate if abs(rate) * float(np.average(certain, weights=certain)) > _TELLING / _STEP else np.nan


def _unit(magnitude: np.ndarray) -> np.ndarray:
    """The last place of float32 numbers."""
    unit: np.ndarray = np.spacing(np.maximum(np.abs(magnitude), _TINY).astype(np.float32)).astype(np.float64)
    return unit


def _adam(optimizer: nn.Optimizer) -> Formula | None:
    if optimizer.use_amsgrad or optimizer.use_nesterov:
        return None
    return _two_moments(optimizer, "moment1", "moment2", float(optimizer.loss_scale))


def _adam_weight_decay(optimizer: nn.Optimizer) -> Formula:
    return _two_moments(optimizer, "adam_m", "adam_v", 1.0, beside=True)


def _momentum(optimizer: nn.Optimizer) -> Formula | None:
    return None if optimizer.use_nesterov else _one_moment(optimizer, "moments")


def _sgd(optimizer: nn.Optimizer) -> Formula | None:
    if optimizer.nesterov or optimizer.dampening != 0:
        return None
    if _number(optimizer.momentum) > 0:
        return _one_moment(optimizer, "accum")
    return Formula(lambda *_: {}, lambda _, gradient: gradient, float(optimizer.loss_scale), _decay(optimizer))


def _one_moment(optimizer: nn.Optimizer, group: str) -> Formula:
    momentum = _number(optimizer.momentum)
    return Formula(
        lambda elements, gradient: {group: (gradient, momentum * elements.moments[group])},
        lambda elements, _: elements.new_moments[group],
        float(optimizer.loss_scale), _decay(optimizer),
    )  # fmt: skip


def _two_moments(optimizer: nn.Optimizer, first: str, second: str, scale: float, *, beside: bool = False) -> Formula:
    beta1, beta2, eps = (_number(getattr(optimizer, name)) for name in ("beta1", "beta2", "eps"))
    return Formula(
        lambda elements, gradient: {
            first: ((1 - beta1) * gradient, beta1 * elements.moments[first]),
            second: ((1 - beta2) * gradient * gradient, beta2 * elements.moments[second]),
        },
        lambda elements, _: elements.new_moments[first] / (np.sqrt(np.abs(elements.new_moments[second])) + eps),
        scale, _decay(optimizer), beside,
    )  # fmt: skip


def _decay(optimizer: nn.Optimizer) -> tuple[float, ...]:
    """Of each weight; MindSpore multiplies it by the loss scale, by which the sum is divided."""
    if not optimizer.exec_weight_decay:
        return (0.0,) * len(optimizer.parameters)
    given = optimizer.weight_decay if optimizer.is_group else [optimizer.weight_decay] * len(optimizer.parameters)
    scale = float(optimizer.loss_scale)
    return tuple(_number(each) / scale * bool(flag) for each, flag in zip(given, optimizer.decay_flags, strict=True))


def _number(value: Any) -> float:
    """A setting as the kernels get it: as float32."""
    array = value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)
    return float(array.reshape(-1)[0].astype(np.float32))


_KNOWN: dict[str, Callable[[nn.Optimizer], Formula | None]] = {
    "Adam": _adam, "AdamWeightDecay": _adam_weight_decay, "Momentum": _momentum, "SGD": _sgd,
}  # fmt: skip
"""By the name of the class in `mindspore.nn`."""

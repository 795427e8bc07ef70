"""What is trained: a network, its optimizer and its batches; everything follows from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from mindspore import nn

from benchmarks.false_alarms.networks import (
    Critic,
    Denoiser,
    Language,
    LowRank,
    Pairs,
    Perceptron,
    Recurrent,
    ResNet,
    Supervised,
    TwoTasks,
    UNet,
    Variational,
    VisionTransformer,
    WideAndDeep,
    group_norm,
)

__all__ = ["ABRUPT", "STEPS", "TRAININGS", "Training"]

Array = np.ndarray[Any, Any]
Random = np.random.Generator
Batches = Iterator[tuple[Array, Array]]
STEPS = 400


class Training(NamedTuple):
    """One training.

    Attributes:
        loss: Takes a batch and returns the loss.
        optimizer: Of its parameters.
        batches: As many as there are steps.
    """

    loss: nn.Cell
    optimizer: nn.Cell
    batches: Batches


TRAININGS: dict[str, Callable[[Random], Training]] = {}
"""By name."""
ABRUPT = ("other tokens from step 200 on", "images four times as bright from step 200 on")
"""Trainings whose data become something else at once."""


def _training(name: str) -> Callable[[Callable[[Random], Training]], None]:
    def add(make: Callable[[Random], Training]) -> None:
        TRAININGS[name] = make

    return add


def _cosine(peak: float, warm_up: int = 30) -> list[float]:
    steps = np.arange(STEPS + 1)
    return list(map(float, peak * np.minimum((steps + 1) / warm_up, 1) * (0.55 + 0.45 * np.cos(np.pi * steps / STEPS))))


def _adam(loss: nn.Cell, rate: Any) -> nn.Cell:
    return nn.Adam(loss.trainable_params(), rate)


def _adamw(loss: nn.Cell, rate: Any) -> nn.Cell:
    return nn.AdamWeightDecay(loss.trainable_params(), rate, 0.9, 0.95)


def _momentum(loss: nn.Cell, rate: Any) -> nn.Cell:
    return nn.Momentum(loss.trainable_params(), rate, 0.9, weight_decay=5e-4)


def _text(random: Random, lengths: Iterable[int], tokens: int = 40) -> Batches:
    """Eight sequences of a Markov chain for each length."""
    chances = random.dirichlet(np.full(tokens, 0.08), size=tokens).cumsum(1)
    text = np.zeros(60_000, np.int32)
    for i, share in enumerate(random.random(len(text) - 1)):
        text[i + 1] = min(tokens - 1, np.searchsorted(chances[text[i]], share))
    for length in lengths:
        at = random.integers(0, len(text) - length - 1, 8)[:, None] + np.arange(length + 1)
        yield text[at[:, :-1]], text[at[:, 1:]]


def _images(random: Random, count: int = 16) -> Batches:
    """Ten classes under noise."""
    classes = random.standard_normal((10, 3, 16, 16)) / 2
    for _ in range(STEPS):
        labels = random.integers(0, 10, count)
        yield (classes[labels] + random.standard_normal((count, 3, 16, 16))).astype(np.float32), labels.astype(np.int32)


def _numbers(
    random: Random,
    draw: Callable[[tuple[int, int]], Array],
    noise: Callable[[int], Array] | None = None,
    count: int = 32,
) -> Batches:
    """A smooth function of 20 numbers, under noise."""
    weights = random.standard_normal((20, 1)) / 20**0.5
    for _ in range(STEPS):
        x, error = draw((count, 20)), random.standard_normal(count) if noise is None else noise(count)
        yield x.astype(np.float32), (np.tanh(x @ weights) + 0.1 * error[:, None]).astype(np.float32)


def _normal(random: Random, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def _language(random: Random, make: Callable[..., nn.Cell], rate: Any, **options: Any) -> Training:
    loss = Supervised(Language(**options))
    return Training(loss, make(loss, rate), _text(random, [32] * STEPS))


@_training("ResNet with batch norm, momentum, steps of the rate")
def _(random: Random) -> Training:
    loss = Supervised(ResNet())
    return Training(loss, _momentum(loss, [0.1 if i < 200 else 0.01 for i in range(STEPS + 1)]), _images(random))


@_training("ResNet with group norm, Adam, one cycle of the rate")
def _(random: Random) -> Training:
    loss = Supervised(ResNet(group_norm))
    rates = np.interp(np.arange(STEPS + 1), [0, 120, 360, STEPS], [1e-4, 3e-3, 1e-4, 3e-6])
    return Training(loss, _adam(loss, list(map(float, rates))), _images(random))


@_training("ResNet, now and then a batch of two images")
def _(random: Random) -> Training:
    loss = Supervised(ResNet())
    few = ((x[:2], y[:2]) if i % 40 == 39 else (x, y) for i, (x, y) in enumerate(_images(random)))
    return Training(loss, _momentum(loss, 0.05), few)


@_training("ResNet, now and then a batch of black images")
def _(random: Random) -> Training:
    loss = Supervised(ResNet(group_norm))
    return Training(loss, _adamw(loss, 1e-3), ((x * (i % 60 != 59), y) for i, (x, y) in enumerate(_images(random))))


@_training(ABRUPT[1])
def _(random: Random) -> Training:
    loss = Supervised(ResNet())
    brighter = ((x * np.float32(1 if i < 200 else 4), y) for i, (x, y) in enumerate(_images(random)))
    return Training(loss, _momentum(loss, 0.05), brighter)


@_training("U-Net, masks mostly empty")
def _(random: Random) -> Training:
    def batches() -> Batches:
        for step in range(STEPS):
            x, y = _normal(random, 4, 3, 16, 16), np.zeros((4, 1, 16, 16), np.float32)
            if step % 5 == 0:
                top, left = random.integers(0, 12, 2)
                x[0, :, top : top + 4, left : left + 4] += 3
                y[0, 0, top : top + 4, left : left + 4] = 1
            yield x, y

    loss = UNet()
    return Training(loss, _adam(loss, 1e-3), batches())


@_training("vision transformer, dropout 0.1")
def _(random: Random) -> Training:
    loss = Supervised(VisionTransformer(0.1), smoothing=0.1)
    return Training(loss, _adamw(loss, _cosine(1e-3)), _images(random))


@_training("vision transformer, dropout 0.5, four images")
def _(random: Random) -> Training:
    loss = Supervised(VisionTransformer(0.5))
    return Training(loss, _adamw(loss, _cosine(2e-3)), _images(random, 4))


@_training("LSTM, Adam")
def _(random: Random) -> Training:
    loss = Supervised(Recurrent(nn.LSTM))
    return Training(loss, _adam(loss, 3e-3), _text(random, [24] * STEPS))


@_training("GRU, SGD at a rate of 1")
def _(random: Random) -> Training:
    loss = Supervised(Recurrent(nn.GRU))
    return Training(loss, nn.SGD(loss.trainable_params(), 1.0), _text(random, [24] * STEPS))


@_training("LSTM, sequences of 6, then 24, then 60")
def _(random: Random) -> Training:
    loss = Supervised(Recurrent(nn.LSTM))
    return Training(loss, _adam(loss, 2e-3), _text(random, [6] * 100 + [24] * 150 + [60] * 150))


@_training("decoder, warm-up and cosine")
def _(random: Random) -> Training:
    return _language(random, _adamw, _cosine(2e-3))


@_training("decoder, norms behind, no warm-up")
def _(random: Random) -> Training:
    return _language(random, _adamw, 1e-3, post=True)


@_training("decoder, warm restarts of the rate")
def _(random: Random) -> Training:
    rates = 3e-3 * (0.51 + 0.49 * np.cos(np.pi * (np.arange(STEPS + 1) % 80) / 80))
    return _language(random, _adamw, list(map(float, rates)))


@_training("decoder, rate ten times too high")
def _(random: Random) -> Training:
    return _language(random, _adamw, 2e-2)


@_training("decoder, head begins with zeros")
def _(random: Random) -> Training:
    return _language(random, _adamw, 1e-3, zero_head=True)


@_training("decoder, mostly padding")
def _(random: Random) -> Training:
    def batches() -> Batches:
        for x, y in _text(random, [32] * STEPS):
            padding = np.arange(32) >= random.integers(1, 32, (8, 1))
            yield np.where(padding, 0, x).astype(np.int32), np.where(padding, 0, y).astype(np.int32)

    return _language(random, _adamw, 1e-3)._replace(batches=batches())


@_training(ABRUPT[0])
def _(random: Random) -> Training:
    text = enumerate(_text(random, [32] * STEPS, 20))
    moved = ((x + 20 * (i >= 200), y + 20 * (i >= 200)) for i, (x, y) in text)
    batches = ((x.astype(np.int32), y.astype(np.int32)) for x, y in moved)
    return _language(random, _adamw, 1e-3)._replace(batches=batches)


@_training("mixture of four experts")
def _(random: Random) -> Training:
    return _language(random, _adamw, _cosine(3e-3), layers=2, experts=4)


@_training("mixture of four experts without biases")
def _(random: Random) -> Training:
    return _language(random, _adamw, _cosine(3e-3), layers=2, experts=4, bias=False)


@_training("mixture of eight experts")
def _(random: Random) -> Training:
    return _language(random, _adamw, _cosine(1e-3), layers=2, experts=8)


@_training("low-rank adapters, second matrix begins with zeros")
def _(random: Random) -> Training:
    classes = random.standard_normal((10, 20))
    labels = (random.integers(0, 10, 32) for _ in range(STEPS))
    batches = (((classes[y] + _normal(random, 32, 20)).astype(np.float32), y.astype(np.int32)) for y in labels)
    loss = Supervised(LowRank())
    return Training(loss, _adamw(loss, 2e-3), batches)


@_training("perceptron, inputs by Student's t with 2 degrees of freedom")
def _(random: Random) -> Training:
    loss = Supervised(Perceptron(), classes=False)
    return Training(loss, _adam(loss, 1e-3), _numbers(random, lambda shape: random.standard_t(2, shape)))


@_training("perceptron, log-normal inputs")
def _(random: Random) -> Training:
    loss = Supervised(Perceptron(), classes=False)
    return Training(loss, _adam(loss, 1e-3), _numbers(random, lambda shape: random.lognormal(0, 1.5, shape)))


@_training("perceptron, targets with outliers")
def _(random: Random) -> Training:
    loss = Supervised(Perceptron(norm=True), classes=False)
    noise = lambda count: random.standard_t(1.5, count)  # noqa: E731
    return Training(loss, _adam(loss, 1e-3), _numbers(random, random.standard_normal, noise))


@_training("perceptron, one sample a step")
def _(random: Random) -> Training:
    loss = Supervised(Perceptron(norm=True), classes=False)
    batches = _numbers(random, random.standard_normal, count=1)
    return Training(loss, nn.SGD(loss.trainable_params(), 1e-2), batches)


@_training("recommender, rare categories")
def _(random: Random) -> Training:
    taste, categories = random.standard_normal(5000), (random.zipf(1.3, (32, 10)) for _ in range(STEPS))
    chosen = (np.minimum(each, 4999).astype(np.int32) for each in categories)
    loss = Supervised(WideAndDeep())
    return Training(loss, _adam(loss, 1e-3), ((x, (taste[x].sum(1) > 0).astype(np.int32)) for x in chosen))


@_training("variational autoencoder")
def _(random: Random) -> Training:
    base, loss = _normal(random, 8, 256), Variational()
    batches = ((_normal(random, 16, 8) @ base, _normal(random, 16, 8)) for _ in range(STEPS))
    return Training(loss, _adam(loss, 1e-3), batches)


@_training("diffusion, losses over many powers of ten")
def _(random: Random) -> Training:
    base, loss = _normal(random, 8, 64) / 3, Denoiser()
    return Training(
        loss, _adam(loss, 1e-3), ((_normal(random, 32, 8) @ base, _normal(random, 32, 64)) for _ in range(STEPS))
    )


@_training("two tasks, one of them rare and loud")
def _(random: Random) -> Training:
    def batches() -> Batches:
        weights, classes = _normal(random, 20, 1), _normal(random, 10, 20)
        for step in range(STEPS):
            labels = random.integers(0, 10, 32)
            x, share = classes[labels] + _normal(random, 32, 20), float(step % 25 != 24)
            both = np.concatenate([labels[:, None], 30 * (x @ weights)], 1)
            yield np.concatenate([x, np.full((32, 1), share)], 1).astype(np.float32), both.astype(np.float32)

    loss = TwoTasks()
    return Training(loss, _adam(loss, 1e-3), batches())


@_training("contrastive pairs, learned temperature")
def _(random: Random) -> Training:
    mixing, loss = _normal(random, 20, 20) / 4, Pairs()
    left = (_normal(random, 32, 20) for _ in range(STEPS))
    return Training(loss, _adam(loss, 1e-3), ((x, x @ mixing + 0.3 * _normal(random, 32, 20)) for x in left))


@_training("generator and critic")
def _(random: Random) -> Training:
    loss = Critic()
    batches = ((_normal(random, 32, 8), 1 + 0.5 * _normal(random, 32, 20)) for _ in range(STEPS))
    return Training(loss, nn.Adam(loss.trainable_params(), 1e-3, 0.5), batches)

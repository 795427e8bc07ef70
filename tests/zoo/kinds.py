"""What is trained: a network, its loss, its optimizer, its batches, and the style of the training."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matrix import KINDS as NAMES
from matrix import OPTIMIZERS
from mindspore import Parameter, Tensor, nn, ops
from networks.experts import Best, BestTwo, Rows, Soft, Stacked, mixture
from networks.language import (
    LENGTH,
    TOKENS,
    Block,
    CastDense,
    CastProduct,
    Language,
    Recurrent,
    feed,
    layer_norm,
    rms_norm,
    swiglu,
    with_casts,
)
from networks.tables import Adapters, Denoiser, Perceptron, Recommender, half_frozen
from networks.vision import ResNet, UNet, group_norm
from writers import Rewind, announced, planned, schedule

Batch = tuple[np.ndarray, np.ndarray]


class Kind(NamedTuple):
    """One kind of training."""

    network: Callable[[], nn.Cell]  # makes the network
    loss: Callable[[], nn.Cell]  # makes the loss of its output and the labels
    batch: Callable[[np.random.Generator], Batch]  # makes one batch
    optimizer: Callable[[Any], nn.Cell]  # makes the optimizer of some parameters
    style: str = "cell"  # name of a style of `trainings`
    scale: float = 1.0  # constant loss scale
    # makes what a program writes between steps, a function of the step's number, the loss, the optimizer and the
    # monitors
    writer: Callable[[], Callable[[int, Any, Any, Any], None]] | None = None


class Classes(nn.Cell):
    """Cross entropy over the last axis."""

    def __init__(self):
        super().__init__()
        self.loss = nn.CrossEntropyLoss()

    def construct(self, out, y):
        return self.loss(out.reshape((-1, out.shape[-1])), y.reshape((-1,)))


class Weighted(Classes):
    """Times a number that a program may write."""

    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = Parameter(Tensor(np.float32(weight)), name="loss_weight", requires_grad=False)

    def construct(self, out, y):
        return super().construct(out, y) * self.weight


class Square(nn.Cell):
    """The mean square."""

    def construct(self, out, y):
        return ops.mean((out - y) ** 2)


class Mask(nn.Cell):
    """Binary cross entropy of a mask."""

    def construct(self, out, y):
        one = ops.ones_like(y)
        return ops.binary_cross_entropy_with_logits(out, y, one, one * 5.0)


def _text(random):
    start, step = random.integers(0, TOKENS, (4, 1)), random.integers(1, 3, (4, 1))
    text = (start + step * np.arange(LENGTH + 1)) % TOKENS
    return text[:, :-1].astype(np.int32), text[:, 1:].astype(np.int32)


def _images(random):
    y = random.integers(0, 4, 8)
    x = random.standard_normal((8, 3, 8, 8)) + np.cos(np.arange(64) * (y[:, None] + 1) / 6).reshape(8, 1, 8, 8)
    return x.astype(np.float32), y.astype(np.int32)


def _masks(random):
    x, y = random.standard_normal((4, 3, 8, 8)), np.zeros((4, 1, 8, 8))
    x[:, :, 2:5, 3:6] += 2
    y[:, :, 2:5, 3:6] = 1
    return x.astype(np.float32), y.astype(np.float32)


def _rows(random):
    x = random.standard_normal((16, 10))
    return x.astype(np.float32), np.argmax(x[:, :4] + x[:, 4:8] ** 2, 1).astype(np.int32)


def _categories(random):
    x = np.minimum(random.zipf(1.4, (16, 6)), 200) - 1
    return x.astype(np.int32), (x.sum(1) % 2).astype(np.int32)


def _noisy(random):
    noise, level = random.standard_normal((16, 16)), random.uniform(-2, 1, (16, 1))
    clean = np.cos(np.arange(16) * random.uniform(0.2, 0.6, (16, 1)))
    x = (clean + np.exp(level) * noise) / np.sqrt(1 + np.exp(2 * level))
    return np.concatenate([x, level], 1).astype(np.float32), noise.astype(np.float32)


def _adam(weights):
    return nn.Adam(weights, 2e-3)


def _adamw(weights):
    return nn.AdamWeightDecay(weights, 2e-3, 0.9, 0.95)


def _momentum(weights):
    return nn.Momentum(weights, 0.02, 0.9, weight_decay=1e-4)


def _momentum_scaled(weights):
    return nn.Momentum(weights, 0.02, 0.9, loss_scale=1024.0)


def _sgd(weights):
    return nn.SGD(weights, 0.1)


def _language(make, *, optimizer=_adamw, **more):
    return Kind(make, Classes, _text, optimizer, **more)


def _block():
    return Block(layer_norm, feed)


def _llama_block():
    return Block(rms_norm, swiglu)


def _encoder(dropout):
    return Language(lambda: Block(layer_norm, feed, causal=False, post=True, dropout=dropout))


def _llama(**more):
    return Language(_llama_block, norm=rms_norm, **more)


def _perceptron(**more):
    return Kind(Perceptron, more.pop("loss", Classes), _rows, more.pop("optimizer", _adam), **more)


def _gan(random):
    noise, real = random.standard_normal((16, 8)), 1 + random.standard_normal((16, 10)) / 2
    return noise.astype(np.float32), real.astype(np.float32)


def _scaled(scale):
    """All gradients are so many times as large, those that the optimizer gets too."""
    rate = 0.1 / scale
    return _perceptron(loss=lambda: Weighted(scale), optimizer=lambda weights: nn.SGD(weights, rate), scale=scale)


def _with_optimizer(name):
    (kind,) = (each for each in dir(nn) if each.lower() == name)
    rate = {"adadelta": 1.0, "adagrad": 0.02, "asgd": 0.05, "ftrl": 0.02, "proximaladagrad": 0.02}.get(name, 2e-3)
    return _perceptron(optimizer=lambda weights: getattr(nn, kind)(weights, rate))


KINDS: dict[str, Kind] = {
    "batchnorm": Kind(ResNet, Classes, _images, _momentum),
    "groupnorm": Kind(lambda: ResNet(group_norm), Classes, _images, _adam),
    "unet": Kind(UNet, Mask, _masks, _adam),
    "lstm": _language(lambda: Recurrent(nn.LSTM), optimizer=_adam),
    "gru": _language(lambda: Recurrent(nn.GRU), optimizer=_sgd),
    "encoder": _language(lambda: _encoder(0.0)),
    "dropout": _language(lambda: _encoder(0.1)),
    "tied": _language(lambda: Language(_block, tied=True)),
    "swiglu": _language(_llama),
    "moe1": _language(lambda: mixture(Best)),
    "moe2": _language(lambda: mixture(BestTwo)),
    "moesoft": Kind(lambda: Rows(Soft(), residual=False), Classes, _rows, _adam, "loop"),
    "moestack": Kind(lambda: Rows(Stacked(2), residual=True), Classes, _rows, _adam, "loop"),
    "adapters": Kind(Adapters, Classes, _rows, _adamw),
    "recommender": Kind(Recommender, Classes, _categories, _adam),
    "diffusion": Kind(Denoiser, Square, _noisy, _adam),
    "gan": Kind(Perceptron, Classes, _gan, _adam, "gan"),
    "frozen": Kind(half_frozen, Classes, _rows, _momentum),
    "casts": _language(lambda: with_casts(CastProduct), style="loop", scale=4096.0),
    "castdense": _language(lambda: with_casts(CastDense), style="loop", scale=4096.0),
    "accumulation": _language(lambda: Language(_block), style="accumulation"),
    "recompute": _language(lambda: _llama(recompute=True)),
    "loop": _perceptron(style="loop"),
    "clipping": _language(lambda: Language(_block), style="clipping", optimizer=_adam),
    "jit": _perceptron(style="jit"),
    "jitstep": _perceptron(style="jitstep", optimizer=_adamw),
    "model": _perceptron(style="model"),
    "fit": Kind(ResNet, Classes, _images, _momentum, "fit"),
    "sink": _perceptron(style="sink", optimizer=_momentum),
    "processes": _perceptron(style="processes"),
    "schedules": _perceptron(loss=Weighted, writer=lambda: schedule),
    "schedulesmodel": _perceptron(loss=Weighted, style="model", writer=lambda: schedule),
    "rewind": _perceptron(loss=Weighted, writer=Rewind),
    "functional": Kind(lambda: Perceptron(norm=False), Classes, _rows, _adam, "functional"),
    "fixedscale": _language(lambda: Language(_block), optimizer=_momentum_scaled, style="model", scale=1024.0),
    "tiny": _scaled(2.0**-66),
    "huge": _scaled(2.0**66),
    "planned": _perceptron(loss=Weighted, writer=lambda: planned),
    "announced": _perceptron(loss=Weighted, writer=lambda: announced),
    "anew": _perceptron(style="anew"),
    "resumed": _perceptron(style="resumed", optimizer=_adamw),
    **{name: _with_optimizer(name) for name in OPTIMIZERS},
}
assert tuple(KINDS) == NAMES, "the names in matrix.py are others"

"""Small networks of the kinds that people train, as MindSpore writes them; none was there when margins were fitted."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer

__all__ = [
    "Critic",
    "Denoiser",
    "Language",
    "LowRank",
    "Pairs",
    "Perceptron",
    "Recurrent",
    "ResNet",
    "Supervised",
    "TwoTasks",
    "UNet",
    "Variational",
    "VisionTransformer",
    "WideAndDeep",
    "group_norm",
]


class Supervised(nn.Cell):
    """A network with its loss: cross entropy of classes, or the mean square."""

    def __init__(self, network: nn.Cell, *, classes: bool = True, smoothing: float = 0.0) -> None:
        super().__init__()
        self.network, self.classes = network, classes
        self.loss = nn.CrossEntropyLoss(label_smoothing=smoothing)

    def construct(self, x, y):
        out = self.network(x)
        if self.classes:
            return self.loss(out.reshape((-1, out.shape[-1])), y.reshape((-1,)))
        return ops.mean((out - y) ** 2)


def group_norm(channels: int) -> nn.Cell:
    """Of four groups."""
    return nn.GroupNorm(4, channels)


class _Residual(nn.Cell):
    def __init__(self, into, out, stride, norm):
        super().__init__()
        self.first, self.second = nn.Conv2d(into, out, 3, stride), nn.Conv2d(out, out, 3)
        self.norm1, self.norm2 = norm(out), norm(out)
        self.short = nn.Conv2d(into, out, 1, stride)

    def construct(self, x):
        return ops.relu(self.norm2(self.second(ops.relu(self.norm1(self.first(x))))) + self.short(x))


class ResNet(nn.Cell):
    """For images of shape (N, 3, 16, 16) in ten classes."""

    def __init__(self, norm=nn.BatchNorm2d, width: int = 16) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3), norm(width)
        self.blocks = nn.SequentialCell(
            [_Residual(width * 2 ** max(i - 1, 0), width * 2**i, 1 + (i > 0), norm) for i in range(3)]
        )
        self.head = nn.Dense(4 * width, 10)

    def construct(self, x):
        return self.head(ops.mean(self.blocks(ops.relu(self.norm(self.stem(x)))), (2, 3)))


class UNet(nn.Cell):
    """Loss of a mask that is mostly empty."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down, self.deep = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3, 2), nn.Conv2d(32, 32, 3)
        self.up, self.head = nn.Conv2dTranspose(32, 16, 2, 2, pad_mode="valid"), nn.Conv2d(32, 1, 3)

    def construct(self, x, y):
        a = ops.relu(self.first(x))
        h = ops.relu(self.deep(ops.relu(self.down(a))))
        out, one = self.head(ops.concat((self.up(h), a), 1)), ops.ones_like(y)
        return ops.binary_cross_entropy_with_logits(out, y, one, one * 50.0)


class Recurrent(nn.Cell):
    """A language model of two layers of `nn.LSTM` or `nn.GRU`."""

    def __init__(self, kind, vocabulary: int = 40, width: int = 48) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Dense(width, vocabulary)
        self.layers = kind(width, width, 2, batch_first=True)

    def construct(self, x):
        return self.head(self.layers(self.embedding(x))[0])


class _Attention(nn.Cell):
    def __init__(self, width, heads, length, causal):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Dense(width, 3 * width), nn.Dense(width, width), heads
        self.mask = Tensor(np.triu(np.full((length, length), -1e9 * causal, np.float32), 1))

    def construct(self, x):
        n, length, width = x.shape
        shape = (n, length, 3, self.heads, width // self.heads)
        q, k, v = ops.unbind(self.qkv(x).reshape(shape).transpose((2, 0, 3, 1, 4)), 0)
        scores = ops.matmul(q, k.transpose((0, 1, 3, 2))) * (width // self.heads) ** -0.5 + self.mask
        return self.out(ops.matmul(ops.softmax(scores), v).transpose((0, 2, 1, 3)).reshape((n, length, width)))


class _Feed(nn.Cell):
    def __init__(self, width, hidden, *, bias=True):
        super().__init__()
        self.up, self.down = nn.Dense(width, hidden, has_bias=bias), nn.Dense(hidden, width, has_bias=bias)

    def construct(self, x):
        return self.down(ops.gelu(self.up(x)))


class _Mixture(nn.Cell):
    """Each token goes to one expert; an expert may get none."""

    def __init__(self, width, experts, *, bias):
        super().__init__()
        self.router = nn.Dense(width, experts, has_bias=False)
        self.experts = nn.CellList([_Feed(width, 2 * width, bias=bias) for _ in range(experts)])

    def construct(self, x):
        shares = ops.softmax(self.router(x))
        chosen, out = ops.argmax(shares, -1), ops.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mine = ops.cast(chosen == i, ms.float32).expand_dims(-1)
            out = out + shares[..., i].expand_dims(-1) * mine * expert(x * mine)
        return out


class _Block(nn.Cell):
    def __init__(self, width, length, causal, *, experts=0, bias=True, post=False, dropout=0.0):
        super().__init__()
        self.norm1, self.norm2, self.post = nn.LayerNorm((width,)), nn.LayerNorm((width,)), post
        self.attention = _Attention(width, 4, length, causal)
        self.feed = _Mixture(width, experts, bias=bias) if experts else _Feed(width, 4 * width)
        self.dropout = nn.Dropout(p=dropout) if dropout else nn.Identity()

    def construct(self, x):
        if self.post:
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.feed(x))
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.feed(self.norm2(x)))


class Language(nn.Cell):
    """A decoder for 40 tokens and sequences of 32; `options` are those of its blocks."""

    def __init__(self, layers: int = 3, width: int = 48, *, zero_head: bool = False, **options) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, width)
        self.places = Parameter(initializer(Normal(0.02), (32, width)), name="places")
        self.blocks = nn.SequentialCell([_Block(width, 32, True, **options) for _ in range(layers)])
        self.norm = nn.LayerNorm((width,))
        self.head = nn.Dense(width, 40, has_bias=False, weight_init="zeros" if zero_head else None)

    def construct(self, x):
        return self.head(self.norm(self.blocks(self.embedding(x) + self.places)))


class VisionTransformer(nn.Cell):
    """For images of shape (N, 3, 16, 16) in ten classes, with dropout."""

    def __init__(self, dropout: float, width: int = 48) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4, pad_mode="valid")
        self.places = Parameter(initializer(Normal(0.02), (16, width)), name="places")
        self.blocks = nn.SequentialCell([_Block(width, 16, False, dropout=dropout) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm((width,)), nn.Dense(width, 10)

    def construct(self, x):
        h = self.patches(x)
        h = h.reshape((*h.shape[:2], -1)).transpose((0, 2, 1)) + self.places
        return self.head(ops.mean(self.norm(self.blocks(h)), 1))


class Perceptron(nn.Cell):
    """Dense layers; `norm` behind the first."""

    def __init__(self, into: int = 20, out: int = 1, *, norm: bool = False) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(
            [
                nn.Dense(into, 64),
                nn.ReLU(),
                nn.LayerNorm((64,)) if norm else nn.Identity(),
                nn.Dense(64, 64),
                nn.ReLU(),
                nn.Dense(64, out),
            ]
        )

    def construct(self, x):
        return self.layers(x)


class WideAndDeep(nn.Cell):
    """A recommender: ten of 5,000 categories, of which a few are frequent."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.wide = nn.Embedding(5000, 8), nn.Embedding(5000, 2)
        self.deep = Perceptron(80, 2)

    def construct(self, x):
        return self.deep(self.embedding(x).reshape((x.shape[0], -1))) + ops.sum(self.wide(x), 1)


class Variational(nn.Cell):
    """Loss of a variational autoencoder; `noise` is that of the latent variables."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mean, self.spread = nn.Dense(256, 128), nn.Dense(128, 8), nn.Dense(128, 8)
        self.outer, self.out = nn.Dense(8, 128), nn.Dense(128, 256)

    def construct(self, x, noise):
        h = ops.relu(self.inner(x))
        mean, spread = self.mean(h), self.spread(h)
        out = self.out(ops.relu(self.outer(mean + ops.exp(0.5 * spread) * noise)))
        latent = ops.mean(ops.sum(1 + spread - mean * mean - ops.exp(spread), 1))
        return ops.mean(ops.sum((out - x) ** 2, 1)) - 0.5 * latent


class Denoiser(nn.Cell):
    """Loss of a diffusion model with noise levels over eight powers of e, weighted by their inverse squares."""

    def __init__(self) -> None:
        super().__init__()
        self.level, self.into, self.norm = nn.Dense(1, 128), nn.Dense(64, 128), nn.LayerNorm((128,))
        self.middle, self.out = nn.Dense(128, 128), nn.Dense(128, 64)

    def construct(self, x, noise):
        level = ops.exp(6 * (ops.abs(noise[:, :1]) % 1.0) - 4)
        h = ops.silu(self.into((x + level * noise) / ops.sqrt(1 + level * level)) + self.level(ops.log(level)))
        out = self.out(h + ops.silu(self.middle(self.norm(h))))
        return ops.mean((out - noise) ** 2 / (level * level))


class LowRank(nn.Cell):
    """Frozen dense layers with trained low-rank ones beside them, the second of which begins with zeros."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((20, 64), (64, 64), (64, 10))
        self.frozen = nn.CellList([nn.Dense(*size) for size in sizes])
        self.into = nn.CellList([nn.Dense(a, 4, has_bias=False) for a, _ in sizes])
        self.out = nn.CellList([nn.Dense(4, b, has_bias=False, weight_init="zeros") for _, b in sizes])
        self.norms = nn.CellList([nn.LayerNorm((b,)) for _, b in sizes])
        for weight in (*self.frozen.get_parameters(), *self.norms.get_parameters()):
            weight.requires_grad = False

    def construct(self, x):
        for i in range(3):
            x = self.frozen[i](x) + 4.0 * self.out[i](self.into[i](x))
            x = ops.relu(self.norms[i](x)) if i < 2 else x
        return x


class TwoTasks(nn.Cell):
    """Loss of one trunk with a class and a number; the 21st column of x says which of them the batch is for."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.SequentialCell([nn.Dense(20, 64), nn.ReLU(), nn.LayerNorm((64,))])
        self.classes, self.number, self.loss = nn.Dense(64, 10), nn.Dense(64, 1), nn.CrossEntropyLoss()

    def construct(self, x, y):
        h, share = self.trunk(x[:, :20]), x[0, 20]
        of_classes = self.loss(self.classes(h), ops.cast(y[:, 0], ms.int32))
        return share * of_classes + (1 - share) * ops.mean((self.number(h) - y[:, 1:]) ** 2)


def _of_length_one(x):
    return x / ops.sqrt(ops.sum(x * x, 1, True) + 1e-8)


class Pairs(nn.Cell):
    """Contrastive loss of 32 pairs, with a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Perceptron(20, 16, norm=True), Perceptron(20, 16, norm=True)
        self.sharpness = Parameter(Tensor([2.0], ms.float32), name="sharpness")
        self.labels, self.loss = Tensor(np.arange(32), ms.int32), nn.CrossEntropyLoss()

    def construct(self, x, y):
        a, b = _of_length_one(self.left(x)), _of_length_one(self.right(y))
        return self.loss(ops.matmul(a, b.T) * ops.exp(self.sharpness), self.labels)


class Critic(nn.Cell):
    """A generator and its critic under one hinge loss: gradients come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = Perceptron(8, 20, norm=True), Perceptron(20, 1)

    def construct(self, noise, x):
        of_made, of_real = self.critic(self.generator(noise)), self.critic(x)
        return ops.mean(ops.relu(1 - of_real) + ops.relu(1 + of_made)) - 0.5 * ops.mean(of_made)

"""Networks for sequences of 12 tokens."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer

TOKENS, LENGTH, WIDTH = 24, 12, 16


class RMSNorm(nn.Cell):
    """Of several operators, as Llama-like networks write it."""

    def __init__(self, width):
        super().__init__()
        self.weight = Parameter(initializer("ones", (width,)), name="weight")

    def construct(self, x):
        wide = ops.cast(x, ms.float32)
        scaled = wide * ops.rsqrt(ops.mean(wide * wide, -1, True) + 1e-6)
        return ops.cast(scaled * self.weight, x.dtype)


class Attention(nn.Cell):
    """Of two heads, with one Dense for each of query, key and value."""

    def __init__(self, width, *, causal):
        super().__init__()
        self.query, self.key, self.value = (nn.Dense(width, width, has_bias=False) for _ in range(3))
        self.out = nn.Dense(width, width, has_bias=False)
        self.mask = Tensor(np.triu(np.full((LENGTH, LENGTH), -1e4 * causal, np.float32), 1))

    def construct(self, x):
        n, length, width = x.shape
        shape = (n, length, 2, width // 2)
        q, k, v = (layer(x).reshape(shape).transpose((0, 2, 1, 3)) for layer in (self.query, self.key, self.value))
        scores = ops.cast(ops.matmul(q, k.transpose((0, 1, 3, 2))), ms.float32) * (width // 2) ** -0.5 + self.mask
        mixed = ops.matmul(ops.cast(ops.softmax(scores), v.dtype), v)
        return self.out(mixed.transpose((0, 2, 1, 3)).reshape((n, length, width)))


class SwiGLU(nn.Cell):
    """The feed-forward layer of Llama."""

    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = nn.Dense(width, hidden, has_bias=False), nn.Dense(width, hidden, has_bias=False)
        self.down = nn.Dense(hidden, width, has_bias=False)

    def construct(self, x):
        return self.down(ops.silu(self.gate(x)) * self.up(x))


class Feed(nn.Cell):
    """Two Dense layers with biases."""

    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Dense(width, hidden), nn.Dense(hidden, width)

    def construct(self, x):
        return self.down(ops.gelu(self.up(x)))


class Block(nn.Cell):
    """Attention and a feed-forward layer; `norm` and `feed` make its parts."""

    def __init__(self, norm, feed, *, causal=True, post=False, dropout=0.0):
        super().__init__()
        self.norm1, self.norm2, self.post = norm(), norm(), post
        self.attention, self.feed = Attention(WIDTH, causal=causal), feed()
        self.dropout = nn.Dropout(p=dropout) if dropout else nn.Identity()

    def construct(self, x):
        if self.post:
            x = self.norm1(x + self.dropout(self.attention(x)))
            return self.norm2(x + self.dropout(self.feed(x)))
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.feed(self.norm2(x)))


def layer_norm():
    return nn.LayerNorm((WIDTH,))


def rms_norm():
    return RMSNorm(WIDTH)


def feed():
    return Feed(WIDTH, 2 * WIDTH)


def swiglu():
    return SwiGLU(WIDTH, 2 * WIDTH)


class Language(nn.Cell):
    """Embedding, blocks, norm, and a head of its own or the embedding's weights once more."""

    def __init__(self, block, *, layers=1, norm=layer_norm, tied=False, recompute=False):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.places = Parameter(initializer(Normal(0.02), (LENGTH, WIDTH)), name="places")
        self.blocks = nn.CellList([block() for _ in range(layers)])
        self.norm, self.tied = norm(), tied
        self.head = nn.Identity() if tied else nn.Dense(WIDTH, TOKENS, has_bias=False)
        if recompute:
            for each in self.blocks:
                each.recompute()

    def construct(self, x):
        h = self.embedding(x) + self.places
        for block in self.blocks:
            h = block(h)
        h = self.norm(h)
        if self.tied:
            return ops.matmul(h, ops.cast(self.embedding.embedding_table, h.dtype).T)
        return self.head(h)


class CastProduct(nn.Cell):
    """A product in float16 with explicit casts around it, as networks for Ascend have it."""

    def __init__(self, into, out):
        super().__init__()
        self.weight = Parameter(initializer(Normal(0.05), (out, into)), name="weight")
        self.matmul, self.cast = ops.MatMul(transpose_b=True), ops.Cast()

    def construct(self, x):
        flat = self.cast(x, ms.float16).reshape((-1, x.shape[-1]))
        product = self.matmul(flat, self.cast(self.weight, ms.float16))
        return self.cast(product, ms.float32).reshape((*x.shape[:-1], -1))


class CastDense(nn.Cell):
    """An `nn.Dense` in float16 between casts."""

    def __init__(self, into, out):
        super().__init__()
        self.dense = nn.Dense(into, out, has_bias=False).to_float(ms.float16)

    def construct(self, x):
        return ops.cast(self.dense(ops.cast(x, ms.float16)), ms.float32)


def with_casts(product):
    """A decoder whose projections are `product` cells."""

    def block():
        made = Block(layer_norm, feed)
        for name in ("query", "key", "value", "out"):
            setattr(made.attention, name, product(WIDTH, WIDTH))
        made.feed.up, made.feed.down = product(WIDTH, 2 * WIDTH), product(2 * WIDTH, WIDTH)
        return made

    return Language(block)


class Recurrent(nn.Cell):
    """Two layers of `nn.LSTM` or `nn.GRU`."""

    def __init__(self, kind):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(TOKENS, WIDTH), kind(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Dense(WIDTH, TOKENS)

    def construct(self, x):
        return self.head(self.layers(self.embedding(x))[0])

"""Networks that are in no test of the package. Each returns its loss; width, heads and depth are drawn by a number."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

BATCH, TOKENS, WORDS = 8, 12, 29


def weight(name: str, *shape: int) -> Parameter:
    """A matrix, or several, as `nn.Dense` draws its own."""
    values = np.random.standard_normal(shape) / np.sqrt(shape[-2])  # noqa: NPY002 - seeded as MindSpore's are
    return Parameter(Tensor(values.astype(np.float32)), name=name)


def entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of the last axis, in float32."""
    flat = logits.astype(ms.float32).reshape(-1, logits.shape[-1])
    return ops.cross_entropy(flat, labels.reshape(-1))


def sentences(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Words that follow one another by a fixed table, with one in ten drawn freely; each word's next one."""
    follows = random.integers(WORDS, size=(WORDS, 2))
    words = random.integers(WORDS, size=(count, TOKENS + 1))
    for i in range(1, TOKENS + 1):
        kept = follows[words[:, i - 1], (words[:, i - 1] + i) % 2]
        words[:, i] = np.where(random.random(count) < 0.9, kept, words[:, i])
    return words[:, :-1].astype(np.int32), words[:, 1:].astype(np.int32)


def images(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Five patterns under noise, and which it is."""
    patterns = random.standard_normal((5, 3, 8, 8))
    labels = random.integers(5, size=count)
    return (patterns[labels] + random.standard_normal((count, 3, 8, 8))).astype(np.float32), labels.astype(np.int32)


def series(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of waves, and how they go on."""
    time = np.arange(10) / 3
    phase, speed = random.random((2, count, 1, 6)) * 3
    values = np.sin(time[None, :, None] * speed + phase) + 0.1 * random.standard_normal((count, 10, 6))
    return values[:, :8].astype(np.float32), values[:, 8:].reshape(count, 12).astype(np.float32)


def rows(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of low rank with a curve in them, twice."""
    mixing = random.standard_normal((4, 32))
    values = np.tanh(random.standard_normal((count, 4)) @ mixing) + 0.05 * random.standard_normal((count, 32))
    return values.astype(np.float32), values.astype(np.float32)


def nodes(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of the nodes of one graph, and of each node the class of its neighbours' mean."""
    features = random.standard_normal((count, 16, 8))
    mixing, near = random.standard_normal((8, 4)), neighbours()
    labels = np.argmax((near / near.sum(1, keepdims=True)) @ features @ mixing, -1)
    return features.astype(np.float32), labels.astype(np.int32)


def neighbours() -> np.ndarray:
    """Who is whose neighbour in the graph, as 16 times 16 zeros and ones."""
    near = np.random.default_rng(5).random((16, 16)) < 0.2
    return (near | near.T | np.eye(16, dtype=bool)).astype(np.float32)


class Decoder(nn.Cell):
    """Blocks of a language model: root mean squares, rotary places, causal heads, gated linear units."""

    data = staticmethod(sentences)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.size = 4, width // 4
        self.embed = nn.Embedding(WORDS, width)
        self.mixed = nn.CellList([nn.Dense(width, 3 * width, has_bias=False) for _ in range(2)])
        self.out = nn.CellList([nn.Dense(width, width, has_bias=False) for _ in range(2)])
        self.gate = nn.CellList([nn.Dense(width, 4 * width, has_bias=False) for _ in range(2)])
        self.down = nn.CellList([nn.Dense(2 * width, width, has_bias=False) for _ in range(2)])
        self.scale = Parameter(Tensor(np.ones(width, np.float32)), name="scale")
        self.head = nn.Dense(width, WORDS)
        angle = np.arange(TOKENS)[:, None] / 100 ** (np.arange(self.size // 2) / (self.size // 2))
        self.cos, self.sin = Tensor(np.cos(angle), ms.float32), Tensor(np.sin(angle), ms.float32)
        self.mask = Tensor(np.triu(np.full((TOKENS, TOKENS), -1e4, np.float32), 1))

    def level(self, x):
        y = x.astype(ms.float32)
        return (y * ops.rsqrt(ops.mean(y * y, -1, True) + 1e-5) * self.scale).astype(x.dtype)

    def turn(self, x):
        left, right = ops.split(x, self.size // 2, -1)
        return ops.concat((left * self.cos - right * self.sin, right * self.cos + left * self.sin), -1)

    def heads_of(self, x):
        return x.reshape(-1, TOKENS, self.heads, self.size).swapaxes(1, 2)

    def construct(self, words, labels):
        x = self.embed(words)
        for i in range(2):
            q, k, v = ops.split(self.mixed[i](self.level(x)), self.heads * self.size, -1)
            q, k = self.turn(self.heads_of(q)), self.turn(self.heads_of(k))
            scores = ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) * self.size**-0.5 + self.mask, -1)
            seen = ops.matmul(scores, self.heads_of(v)).swapaxes(1, 2)
            x = x + self.out[i](seen.reshape(-1, TOKENS, self.heads * self.size))
            gate, up = ops.split(self.gate[i](self.level(x)), 2 * self.heads * self.size, -1)
            x = x + self.down[i](gate * ops.sigmoid(gate) * up)
        return entropy(self.head(self.level(x)), labels)


class Patches(nn.Cell):
    """A mixer over 16 patches of an image, with LayerNorm."""

    data = staticmethod(images)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, 2, 2, pad_mode="valid")
        self.norms = nn.CellList([nn.LayerNorm((width,)) for _ in range(4)])
        self.across = nn.CellList([nn.Dense(16, 16) for _ in range(2)])
        self.along = nn.CellList([nn.Dense(width, width) for _ in range(2)])
        self.head, self.width = nn.Dense(width, 5), width

    def construct(self, x, labels):
        x = self.cut(x).reshape(-1, self.width, 16).swapaxes(1, 2)
        for i in range(2):
            x = x + self.across[i](self.norms[2 * i](x).swapaxes(1, 2)).swapaxes(1, 2)
            x = x + ops.tanh(self.along[i](self.norms[2 * i + 1](x)))
        return entropy(self.head(ops.mean(x, 1)), labels)


class Convolutions(nn.Cell):
    """Residual convolutions with BatchNorm."""

    data = staticmethod(images)

    def __init__(self, width: int) -> None:
        super().__init__()
        width //= 2
        self.first = nn.Conv2d(3, width, 3)
        self.convs = nn.CellList([nn.Conv2d(width, width, 3) for _ in range(2)])
        self.norms = nn.CellList([nn.BatchNorm2d(width) for _ in range(3)])
        self.head = nn.Dense(width, 5)

    def construct(self, x, labels):
        x = ops.relu(self.norms[0](self.first(x)))
        for i in range(2):
            x = x + ops.relu(self.norms[i + 1](self.convs[i](x)))
        return entropy(self.head(ops.mean(x, (2, 3))), labels)


class Recurrent(nn.Cell):
    """Gated recurrent units over eight steps, written out."""

    data = staticmethod(series)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.gates, self.new = nn.Dense(6 + width, 2 * width), nn.Dense(6 + width, width)
        self.norm, self.head = nn.LayerNorm((width,)), nn.Dense(width, 12)
        self.start = Tensor(np.zeros((BATCH, width), np.float32))

    def construct(self, x, after):
        state = self.start
        for i in range(8):
            now = x[:, i]
            keep, reset = ops.split(ops.sigmoid(self.gates(ops.concat((now, state), -1))), self.width, -1)
            fresh = ops.tanh(self.new(ops.concat((now, reset * state), -1)))
            state = keep * state + (1 - keep) * fresh
        error = self.head(self.norm(state)).astype(ms.float32) - after
        return ops.mean(error * error)


class Experts(nn.Cell):
    """Each word goes to the expert that a router chooses; weights are gathered, what they answer is scattered back."""

    data = staticmethod(sentences)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.router = nn.Embedding(WORDS, width), nn.Dense(width, 4)
        self.up, self.down = weight("up", 4, width, 2 * width), weight("down", 4, 2 * width, width)
        self.norm, self.head, self.width = nn.LayerNorm((width,)), nn.Dense(width, WORDS), width
        self.places = Tensor(np.arange(BATCH * TOKENS)[:, None], ms.int32)
        self.nothing = Tensor(np.zeros((BATCH * TOKENS, width), np.float32))

    def construct(self, words, labels):
        x = self.embed(words).reshape(-1, self.width)
        odds = ops.softmax(self.router(x), -1)
        chosen = ops.argmax(odds, -1)
        share = ops.gather_elements(odds, 1, chosen.expand_dims(-1))
        inner = ops.relu(ops.matmul(x.expand_dims(1), ops.gather(self.up, chosen, 0).astype(x.dtype)))
        told = ops.matmul(inner, ops.gather(self.down, chosen, 0).astype(x.dtype)).squeeze(1)
        back = ops.tensor_scatter_elements(
            self.nothing.astype(x.dtype), self.places.tile((1, self.width)), told * share, 0
        )
        even = ops.mean(ops.mean(odds, 0) ** 2) * 4
        return entropy(self.head(self.norm(x + back)), labels) + 0.1 * even


class Coder(nn.Cell):
    """An autoencoder whose code is kept near a normal distribution."""

    data = staticmethod(rows)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Dense(32, width), nn.Dense(4, width)
        self.middle, self.spread, self.back = nn.Dense(width, 4), nn.Dense(width, 4), nn.Dense(width, 32)

    def construct(self, x, again):
        inner = ops.tanh(self.down(x))
        middle, spread = self.middle(inner).astype(ms.float32), self.spread(inner).astype(ms.float32)
        apart = ops.mean(ops.exp(spread) + middle * middle - 1 - spread)
        error = self.back(ops.sigmoid(self.up(middle))).astype(ms.float32) - again
        return ops.mean(error * error) + 1e-3 * apart


class Graph(nn.Cell):
    """Two layers of attention over the neighbours in a graph."""

    data = staticmethod(nodes)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.CellList([nn.Dense(8, width, has_bias=False), nn.Dense(width, width, has_bias=False)])
        self.sent = nn.CellList([nn.Dense(width, 1) for _ in range(2)])
        self.got = nn.CellList([nn.Dense(width, 1) for _ in range(2)])
        self.head = nn.Dense(width, 4)
        self.far = Tensor((neighbours() - 1) * 1e4)

    def construct(self, x, labels):
        for i in range(2):
            x = self.layers[i](x)
            score = self.sent[i](x) + self.got[i](x).swapaxes(1, 2)
            odds = ops.softmax(ops.maximum(score, 0.2 * score) + self.far, -1)
            x = ops.relu(ops.matmul(odds, x)) + 0.1 * x
        return entropy(self.head(x), labels)


NETWORKS = {
    "decoder": Decoder,
    "patches": Patches,
    "convolutions": Convolutions,
    "recurrent": Recurrent,
    "experts": Experts,
    "coder": Coder,
    "graph": Graph,
}

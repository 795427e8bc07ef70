"""Networks for rows of numbers or categories."""

from mindspore import nn, ops


class Perceptron(nn.Cell):
    """Dense layers and a norm."""

    def __init__(self, into=10, out=4, width=24, norm=True):
        super().__init__()
        norm = nn.LayerNorm((width,)) if norm else nn.Identity()
        layers = [nn.Dense(into, width), nn.ReLU(), norm, nn.Dense(width, width), nn.ReLU(), nn.Dense(width, out)]
        self.layers = nn.SequentialCell(layers)

    def construct(self, x):
        return self.layers(x)


def half_frozen():
    """The first and the second Dense layer are not trained."""
    net = Perceptron()
    for layer in (net.layers[0], net.layers[3]):
        for weight in layer.get_parameters():
            weight.requires_grad = False
    return net


class Adapters(nn.Cell):
    """Frozen Dense layers with trained low-rank ones beside them, the second of which begins with zeros."""

    def __init__(self):
        super().__init__()
        sizes = ((10, 24), (24, 24), (24, 4))
        self.frozen = nn.CellList([nn.Dense(*size) for size in sizes])
        self.into = nn.CellList([nn.Dense(a, 4, has_bias=False) for a, _ in sizes])
        self.out = nn.CellList([nn.Dense(4, b, has_bias=False, weight_init="zeros") for _, b in sizes])
        self.norm = nn.LayerNorm((24,))
        for weight in (*self.frozen.get_parameters(), *self.norm.get_parameters()):
            weight.requires_grad = False

    def construct(self, x):
        for i in range(3):
            x = self.frozen[i](x) + 4.0 * self.out[i](self.into[i](x))
            x = ops.relu(self.norm(x) if i == 0 else x) if i < 2 else x
        return x


class Recommender(nn.Cell):
    """Wide and deep: six of 200 categories."""

    def __init__(self):
        super().__init__()
        self.deep, self.wide = nn.Embedding(200, 8), nn.Embedding(200, 2)
        self.layers = nn.SequentialCell([nn.Dense(48, 24), nn.ReLU(), nn.Dense(24, 2)])

    def construct(self, x):
        deep = self.layers(self.deep(x).reshape((x.shape[0], -1)))
        return deep + ops.sum(self.wide(x), 1)


class Denoiser(nn.Cell):
    """Of a diffusion model: what it gets is a noisy row and, in the last column, the logarithm of its noise level."""

    def __init__(self):
        super().__init__()
        self.level, self.into, self.norm = nn.Dense(1, 24), nn.Dense(16, 24), nn.LayerNorm((24,))
        self.middle, self.out = nn.Dense(24, 24), nn.Dense(24, 16)

    def construct(self, x):
        h = ops.silu(self.into(x[:, :16]) + self.level(x[:, 16:]))
        return self.out(h + ops.silu(self.middle(self.norm(h))))

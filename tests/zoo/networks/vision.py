"""Networks for images of shape (N, 3, 8, 8)."""

from mindspore import nn, ops


class Residual(nn.Cell):
    """Two convolutions with norms beside a third."""

    def __init__(self, into, out, norm):
        super().__init__()
        self.first, self.second = nn.Conv2d(into, out, 3, 2), nn.Conv2d(out, out, 3)
        self.norm1, self.norm2, self.short = norm(out), norm(out), nn.Conv2d(into, out, 1, 2)

    def construct(self, x):
        return ops.relu(self.norm2(self.second(ops.relu(self.norm1(self.first(x))))) + self.short(x))


class ResNet(nn.Cell):
    """Four classes."""

    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3), norm(8)
        self.blocks = nn.SequentialCell([Residual(8, 8, norm), Residual(8, 16, norm)])
        self.head = nn.Dense(16, 4)

    def construct(self, x):
        return self.head(ops.mean(self.blocks(ops.relu(self.norm(self.stem(x)))), (2, 3)))


def group_norm(channels):
    """Of four groups."""
    return nn.GroupNorm(4, channels)


class UNet(nn.Cell):
    """A mask of one channel; no norm at all."""

    def __init__(self):
        super().__init__()
        self.first, self.down, self.deep = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 3, 2), nn.Conv2d(16, 16, 3)
        self.up, self.head = nn.Conv2dTranspose(16, 8, 2, 2, pad_mode="valid"), nn.Conv2d(16, 1, 3)

    def construct(self, x):
        a = ops.relu(self.first(x))
        h = ops.relu(self.deep(ops.relu(self.down(a))))
        return self.head(ops.concat((ops.cast(self.up(h), a.dtype), a), 1))

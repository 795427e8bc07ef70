"""Mixtures of four SwiGLU experts behind a softmax gate: each token goes to one, to two, or to all of them."""

import mindspore as ms
from mindspore import nn, ops
from networks.language import WIDTH, Block, Language, SwiGLU, rms_norm


class Experts(nn.Cell):
    """A gate and its experts, which subclasses bring together."""

    def __init__(self, experts=4):
        super().__init__()
        self.gate = nn.Dense(WIDTH, experts, has_bias=False)
        self.experts = nn.CellList([SwiGLU(WIDTH, WIDTH) for _ in range(experts)])

    def shares(self, x):
        return ops.softmax(ops.cast(self.gate(x), ms.float32))


class Best(Experts):
    """An expert gets the tokens whose best one it is, and zeros for all others."""

    def construct(self, x):
        shares = self.shares(x)
        chosen, out = ops.argmax(shares, -1), ops.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mine = ops.cast(chosen == i, x.dtype).expand_dims(-1)
            out = out + ops.cast(shares[..., i], x.dtype).expand_dims(-1) * mine * expert(x * mine)
        return out


class BestTwo(Experts):
    """All experts see all tokens; the shares of the best two sum to 1, and the others count nothing."""

    def __init__(self, experts=4):
        super().__init__(experts)
        self.one_hot = nn.OneHot(depth=experts)

    def construct(self, x):
        shares = self.shares(x)
        _, chosen = ops.topk(shares, 2)
        kept = shares * ops.sum(self.one_hot(chosen), -2)
        kept = ops.cast(kept / ops.sum(kept, -1, True), x.dtype)
        out = ops.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + kept[..., i].expand_dims(-1) * expert(x)
        return out


class Soft(Experts):
    """All experts count by their shares, added one after the other."""

    def construct(self, x):
        shares = ops.softmax(self.gate(x))
        out = self.experts[0](x) * shares[:, 0:1]
        for i in range(1, len(self.experts)):
            out = out + self.experts[i](x) * shares[:, i : i + 1]
        return out


class Stacked(Experts):
    """The same as one sum over a stack."""

    def construct(self, x):
        shares = ops.softmax(self.gate(x))
        return ops.sum(ops.stack([expert(x) for expert in self.experts], -1) * shares.expand_dims(-2), -1)


class Rows(nn.Cell):
    """For rows of ten numbers: a mixture between Dense layers, with its input added or not."""

    def __init__(self, experts, *, residual):
        super().__init__()
        self.into, self.mixture, self.norm = nn.Dense(10, WIDTH), experts, nn.LayerNorm((WIDTH,))
        self.head, self.residual = nn.Dense(WIDTH, 4), residual

    def construct(self, x):
        x = self.into(x)
        if self.residual:
            x = x + self.mixture(self.norm(x))
        else:
            x = self.mixture(x)
        return self.head(self.norm(x))


def mixture(experts):
    """A decoder with RMSNorm whose feed-forward layer is a mixture."""

    def block():
        return Block(rms_norm, experts)

    return Language(block, norm=rms_norm)

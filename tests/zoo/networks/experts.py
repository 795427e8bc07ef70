"""Mixtures of experts: a softmax gate, and each token goes to one or two of four SwiGLU experts."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops
from networks.language import WIDTH, Block, Language, SwiGLU, rms_norm


class Mixture(nn.Cell):
    """All experts see all tokens; the gate's shares decide what counts. The shares of the best `best` sum to 1."""

    def __init__(self, best, experts=4):
        super().__init__()
        self.gate, self.best, self.count = nn.Dense(WIDTH, experts, has_bias=False), best, experts
        self.experts = nn.CellList([SwiGLU(WIDTH, WIDTH) for _ in range(experts)])
        self.one_hot = nn.OneHot(depth=experts)

    def construct(self, x):
        shares = ops.softmax(ops.cast(self.gate(x), ms.float32))
        _, chosen = ops.topk(shares, self.best)
        kept = shares * ops.sum(self.one_hot(chosen), -2)
        if self.best > 1:
            kept = kept / ops.sum(kept, -1, True)
        kept = ops.cast(kept, x.dtype)
        out = ops.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + kept[..., i].expand_dims(-1) * expert(x)
        return out


def mixture(best):
    """A decoder with RMSNorm whose feed-forward layers are mixtures."""

    def block():
        return Block(rms_norm, lambda: Mixture(best))

    return Language(block, norm=rms_norm)

"""The trainings that are struck as compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from asd.operators.drill import workload

__all__ = ["TINY", "TRAININGS", "Training"]

TINY = workload.Workload(hidden=16, layers=1, heads=2, intermediate=32, sequence=8, batch=2)


class Training(NamedTuple):
    """What is struck.

    Attributes:
        net: The network, which the debugger is given.
        step: A training cell around it.
        optimizer: Its optimizer.
        batch: Its arguments.
        moments: The states of the optimizer that may be struck.
    """

    net: nn.Cell
    step: nn.Cell
    optimizer: nn.Cell
    batch: tuple[np.ndarray, ...]
    moments: tuple[Any, ...]


class _Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm((width,)), nn.Dense(width, 2 * width), nn.Dense(2 * width, width)
        self.multiply = ops.Mul()

    def construct(self, x):
        h = self.down(ops.gelu(self.up(self.norm(x))))
        return x + self.multiply(h, ops.sigmoid(x))


class _Branches(nn.Cell):
    """Its middle goes to three calls, two of which are multiplied; a block and a head are of half precision."""

    def __init__(self):
        super().__init__()
        self.first = nn.Dense(12, 16)
        self.blocks = nn.CellList([_Block(16), _Block(16)])
        self.left, self.right = nn.Dense(16, 4), nn.Dense(16, 4)
        for cell in (self.left, self.blocks[1]):
            cell.to_float(ms.float16)
        self.loss = nn.CrossEntropyLoss()

    def construct(self, x, y):
        x = ops.tanh(self.first(x))
        for block in self.blocks:
            x = block(x)
        wide = x.astype(ms.float32)
        return self.loss(self.left(x).astype(ms.float32) * self.right(wide) + ops.mean(wide), y)


def _llama(_: str) -> Training:
    net, optimizer = workload.build(TINY)
    moments = (*optimizer.moments1, *optimizer.moments2)
    return Training(net, nn.TrainOneStepCell(net, optimizer), optimizer, (next(workload.batches(TINY)),), moments)


def _branches(kind: str) -> Training:
    ms.set_seed(7)
    random = np.random.default_rng(7)
    np.random.seed(7)  # noqa: NPY002 - MindSpore draws weights from the global generator
    net = _Branches()
    weights = net.trainable_params()
    if kind == "momentum":
        optimizer = nn.Momentum(weights, 0.05, 0.9)
        moments = tuple(optimizer.moments)
    else:
        optimizer = nn.SGD(weights, 0.05, momentum=0.9)
        moments = tuple(optimizer.accum)
    batch = (random.standard_normal((8, 12)).astype(np.float32), random.integers(0, 4, 8).astype(np.int32))
    return Training(net, nn.TrainOneStepCell(net, optimizer), optimizer, batch, moments)


TRAININGS: dict[str, tuple[Callable[[str], Training], str, str, int]] = {
    "Llama, AdamWeightDecay, mix": (_llama, "", "mix", 1),
    "Llama, AdamWeightDecay, L0": (_llama, "", "L0", 3),
    "branches in half precision, SGD, mix": (_branches, "sgd", "mix", 4),
    "branches in half precision, Momentum, L0": (_branches, "momentum", "L0", 4),
}
"""By name: what makes it, the optimizer, the level of the dumps, and its share of the faults."""

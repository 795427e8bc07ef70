"""Networks that are in no other benchmark, each with its optimizer, and places where a fault can strike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from asd.operators.inject import gradient_fault, numpy_operator

__all__ = ["NETS", "break_product", "training"]

Strike = Callable[[str, np.ndarray], np.ndarray]


class Place(nn.Cell):
    """An identity whose output and gradient a fault can change."""

    def __init__(self, strike: Strike) -> None:
        super().__init__(auto_prefix=False)
        self.back = gradient_fault(lambda array: strike("gradient", array))
        self.forward = Forward(lambda array: strike("activation", array))

    def construct(self, x):
        return self.back(self.forward(x))


class Forward(nn.Cell):
    """Changes the output and leaves the gradient alone."""

    def __init__(self, strike: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__(auto_prefix=False)
        self.strike = numpy_operator(strike)

    def construct(self, x):
        return self.strike(x)

    def bprop(self, x, out, dout):  # noqa: ARG002 - MindSpore calls it so
        return (dout,)


class Struck(nn.Cell):
    """An operator of a broken device: whoever looks at the result sees what the device made of it."""

    def __init__(self, operator: Callable[..., Any], strike: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__(auto_prefix=False)
        self.operator, self.strike = operator, numpy_operator(strike)

    def construct(self, a, b):
        return self.strike(self.operator(a, b))


class Products(nn.Cell):
    """The three products of an `nn.Dense`, each struck, for a training without detection."""

    def __init__(self, strike: Strike) -> None:
        super().__init__(auto_prefix=False)
        self.forward = Struck(ops.MatMul(transpose_b=True), lambda array: strike("product", array))
        self.dx = Struck(ops.MatMul(), lambda array: strike("dx", array))
        self.dw = Struck(ops.MatMul(transpose_a=True), lambda array: strike("dw", array))

    def construct(self, x, w):
        return self.forward(x, w)

    def bprop(self, x, w, out, dout):  # noqa: ARG002 - MindSpore calls it so
        return self.dx(dout, w), self.dw(dout, x)


class AsItsInput(nn.Cell):
    """Casts the weight, as a compiled graph does where the operator itself is called."""

    def __init__(self, products: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.products = products

    def construct(self, x, w):
        return self.products(x, w.astype(x.dtype))


def break_product(dense: nn.Dense, strike: Strike) -> None:
    """Lets faults strike between the products of a layer and whoever looks at them."""
    checked = getattr(dense.matmul, "product", None)  # of a `ProductASD`
    if checked is None:
        dense.matmul = AsItsInput(Products(strike))
        return
    for name, place in (("multiply", "product"), ("multiply_dx", "dx"), ("multiply_dw", "dw")):
        struck = Struck(getattr(checked.parts, name), lambda array, place=place: strike(place, array))
        setattr(checked.parts, name, struck)
    checked.parts.multiply.bare = AsItsInput(Products(strike))  # what PyNative calls where nothing is due


class Mixer(nn.Cell):
    """An MLP-mixer of two blocks."""

    def __init__(self, place: nn.Cell) -> None:
        super().__init__()
        self.tokens = nn.CellList([nn.Dense(16, 16) for _ in range(2)])
        self.channels = nn.CellList([nn.Dense(24, 24) for _ in range(2)])
        self.norms = nn.CellList([nn.LayerNorm((24,)) for _ in range(2)])
        self.last = nn.Dense(24, 24)
        self.place = place

    def construct(self, x):
        for i in range(2):
            x = x + self.tokens[i](self.norms[i](x).swapaxes(1, 2)).swapaxes(1, 2)
            x = x + ops.relu(self.channels[i](x))
            if i == 0:
                x = self.place(x)
        return self.last(x)


class Grouped(nn.Cell):
    """A decoder's block with four heads of queries and two of keys and values."""

    def __init__(self, place: nn.Cell) -> None:
        super().__init__()
        self.first = nn.Dense(24, 32)
        self.query, self.key, self.value = nn.Dense(32, 32), nn.Dense(32, 16), nn.Dense(32, 16)
        self.norm, self.out, self.last = nn.LayerNorm((32,)), nn.Dense(32, 32), nn.Dense(32, 24)
        self.mask = ms.Tensor(np.triu(np.full((16, 16), -1e4, np.float32), 1))
        self.place = place

    def construct(self, x):
        x = self.first(x)
        y = self.norm(x)
        q = self.query(y).reshape(-1, 16, 4, 8).swapaxes(1, 2)
        k = ops.concat([self.key(y), self.key(y)], 2).reshape(-1, 16, 4, 8).swapaxes(1, 2)
        v = ops.concat([self.value(y), self.value(y)], 2).reshape(-1, 16, 4, 8).swapaxes(1, 2)
        scores = ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) / 2.83 + self.mask, -1)
        x = x + self.out(self.place(ops.matmul(scores, v).swapaxes(1, 2).reshape(-1, 16, 32)))
        return self.last(x)


class Residual(nn.Cell):
    """Convolutions with a residual, over the table as an image."""

    def __init__(self, place: nn.Cell) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3)
        self.norm, self.third, self.last = nn.BatchNorm2d(8), nn.Conv2d(8, 1, 3), nn.Dense(24, 24)
        self.place = place

    def construct(self, x):
        x = self.first(x.expand_dims(1))
        return self.last(self.third(x + self.place(ops.relu(self.norm(self.second(x))))).squeeze(1))


class Coder(nn.Cell):
    """An autoencoder with GroupNorm."""

    def __init__(self, place: nn.Cell) -> None:
        super().__init__()
        self.down, self.norm, self.up = nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 1, 3)
        self.code, self.back = nn.Dense(24, 12), nn.Dense(12, 24)
        self.place = place

    def construct(self, x):
        x = ops.relu(self.norm(self.down(x.expand_dims(1))))
        return self.up(self.back(self.place(self.code(x)))).squeeze(1)


class WithLoss(nn.Cell):
    """Returns the mean square of what was not learnt."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, x, y):
        return ops.mean((self.net(x).astype(ms.float32) - y) ** 2)


NETS = {"mixer": Mixer, "grouped": Grouped, "residual": Residual, "autoencoder": Coder}


def training(name: str, precision: str, steps: int, seed: int, strike: Strike) -> tuple[nn.Cell, Any, Any]:
    """A network that returns its loss, its optimizer, and its data."""
    ms.set_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - MindSpore draws weights from it
    net = WithLoss(NETS[name](Place(strike)))
    if precision != "float32":
        net.net.to_float(getattr(ms, precision))
    warm = [1e-3 * min(1, (i + 1) / 10) * (0.6 + 0.4 * np.cos(np.pi * i / steps)) for i in range(steps + 1)]
    weights = net.trainable_params()
    made = {
        "mixer": lambda: nn.AdamWeightDecay(weights, 3e-3),
        "grouped": lambda: nn.Adam(weights, [3 * rate for rate in warm]),
        "residual": lambda: nn.Momentum(weights, [20 * rate for rate in warm], 0.9),
        "autoencoder": lambda: nn.SGD(weights, 0.02, momentum=0.9),
    }[name]()
    random = np.random.default_rng(77)
    mixing = random.standard_normal((24, 24)).astype(np.float32) / 5
    rows = random.standard_normal((4 * steps, 16, 24)).astype(np.float32)
    pairs = [(row, np.tanh(row @ mixing)) for row in rows]
    return net, made, ms.dataset.GeneratorDataset(pairs, ["x", "y"], shuffle=False).batch(4)

"""The trained networks: transformers in three kinds, and a convolution net; every weight is an argument.

A network is a pure function of its weights, so replicas, snapshots and faulty copies are just other arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops

from benchmarks.detection.cells import Convolution, GradientTap, Product, ValueTap

__all__ = ["DEVELOPMENT", "FAMILIES", "Family", "Place", "Registry", "make_network"]

NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Family:
    """One network and its batch.

    Attributes:
        name: As in the tables.
        kind: `decoder`, `encoder` or `convolution`.
        norm: `layer` or `rms`.
        gated: Whether the MLP is gated.
        width: Model width, or channels of the first convolution.
        layers: Number of blocks.
        batch: Samples per replica and step.
        length: Tokens per sample, or the side of an image.
        vocabulary: Tokens or classes.
        heads: Attention heads.
    """

    name: str
    kind: str
    norm: str = "layer"
    gated: bool = False
    width: int = 64
    layers: int = 2
    batch: int = 4
    length: int = 24
    vocabulary: int = 64
    heads: int = 4


FAMILIES = {
    family.name: family
    for family in (
        Family("decoder-layernorm", "decoder"),
        Family("decoder-rmsnorm-gated", "decoder", norm="rms", gated=True),
        Family("encoder", "encoder", batch=6, length=16, vocabulary=32),
        Family("convolution", "convolution", width=12, layers=4, batch=8, length=12, vocabulary=10),
    )
}
"""The networks of the evaluation, by name."""
DEVELOPMENT = {
    family.name: family
    for family in (
        Family("small-decoder-layernorm", "decoder", width=32, layers=1, batch=3, length=16, vocabulary=48, heads=2),
        Family("small-convolution", "convolution", width=8, layers=3, batch=6, length=8, vocabulary=6),
    )
}
"""Other networks, to develop detectors on; the evaluation never sees them."""


@dataclass(frozen=True)
class Place:
    """One site: a tensor that is checked and can be corrupted.

    Attributes:
        operator: Name of the operator that computes it, such as `block0.qkv`.
        kind: `Y` forward result, `B` gradient of an activation, `W` gradient of a weight, `G` gradient of a norm's
            input.
        code: Number of its probe.
        seen: Where its value is in what the network returns; -1 when it is the gradient of the probe.
        operands: For a result of a matrix product, which of its three products it is: 0, 1 or 2; else -1.
        norm: For kind `G` which of the norms it is.
    """

    operator: str
    kind: str
    code: int
    seen: int = -1
    operands: int = -1
    norm: int = -1

    @property
    def name(self) -> str:
        """Such as `block0.qkv.W`."""
        return f"{self.operator}.{self.kind}{'' if self.kind != 'B' else 'ab'[self.operands - 1]}"


class Registry:
    """What a network is made of, in order of execution.

    Attributes:
        weights: Name, shape and standard deviation of each weight; a deviation of 0 starts from ones.
        probes: Shape of each probe.
        norms: Of each norm what `check_norm` has to know of it.
    """

    def __init__(self, rounded: bool, override: bool) -> None:
        self.rounded, self.override = rounded, override
        self.weights: list[tuple[str, tuple[int, ...], float]] = []
        self.probes: list[tuple[int, ...]] = []
        self.norms: list[dict[str, Any]] = []
        self._forward: list[Place] = []
        self._backward: list[Place] = []
        self._seen = 0

    @property
    def places(self) -> list[Place]:
        """All sites: forward ones, then backward ones, in order of execution."""
        return self._forward + self._backward[::-1]

    def weight(self, name: str, shape: tuple[int, ...], deviation: float = 0.0) -> int:
        """The number of a new weight."""
        self.weights.append((name, shape, deviation))
        return len(self.weights) - 1

    def product(self, name: str, a: tuple[int, ...], b: tuple[int, ...], *, of_weight: bool = True) -> Product:
        """A new matrix product of the shapes a and b."""
        at = self._new_probes((*a[:-1], b[-1]), a, b)
        self._new_results(name, at, of_weight=of_weight, checksum=True)
        return Product(at, self.rounded, self.override, len(a) > 2)

    def convolution(self, name: str, a: tuple[int, ...], b: tuple[int, ...], stride: int) -> Convolution:
        """A new convolution of images `(N, C, H, W)` with kernels `(O, C, 3, 3)`."""
        side = (a[2] - 1) // stride + 1
        at = self._new_probes((a[0], b[0], side, side), a, b)
        self._new_results(name, at, of_weight=True, checksum=False)
        return Convolution(at, self.rounded, self.override, b[0], stride)

    def norm(self, name: str, shape: tuple[int, ...], **of_norm: Any) -> tuple[GradientTap, GradientTap]:
        """A new site before a norm, and a tap behind it whose gradient is what the norm is given."""
        at = self._new_probes(shape, shape)
        self._backward.append(Place(name, "G", at, norm=len(self.norms)))
        self.norms.append({**of_norm, "epsilon": NORM_EPSILON})
        return GradientTap(at, False, self.override), GradientTap(at + 1, False, False)

    def value(self, name: str, shape: tuple[int, ...]) -> ValueTap:
        """A new site on a value that no matrix product computes."""
        at = self._new_probes(shape)
        self._forward.append(Place(name, "Y", at, self._seen))
        self._seen += 1
        return ValueTap(at, False, self.override)

    def _new_probes(self, *shapes: tuple[int, ...]) -> int:
        self.probes.extend(shapes)
        return len(self.probes) - len(shapes)

    def _new_results(self, name: str, at: int, *, of_weight: bool, checksum: bool) -> None:
        numbers = (0, 1, 2) if checksum else (-1, -1, -1)
        self._forward.append(Place(name, "Y", at, self._seen, numbers[0]))
        self._seen += 1
        # Backward places are kept in reverse: the gradient of a is computed before that of b.
        self._backward.append(Place(name, "W" if of_weight else "B", at + 2, -1, numbers[2]))
        self._backward.append(Place(name, "B", at + 1, -1, numbers[1]))


class Norm(nn.Cell):
    """LayerNorm or RMSNorm over the last axis, with its site before it."""

    def __init__(self, registry: Registry, name: str, rows: int, width: int, kind: str) -> None:
        super().__init__(auto_prefix=False)
        self.tap, self.behind = registry.norm(name, (rows, width), centred=kind == "layer")
        self.gamma = registry.weight(f"{name}.gamma", (width,))
        self.is_layer = kind == "layer"
        self.layer = ops.LayerNorm(-1, -1, NORM_EPSILON)
        self.zero = Tensor(np.zeros(width, np.float32))

    def construct(self, x, w, probes, code):
        x = self.tap(x, probes[self.tap.at], code)
        if self.is_layer:
            y = self.layer(x, w[self.gamma], self.zero)[0]
        else:
            y = x * ops.rsqrt(ops.mean(x * x, -1, True) + NORM_EPSILON) * w[self.gamma]
        return self.behind(y, probes[self.behind.at], code), ((x, w[self.gamma]),)


class Linear(nn.Cell):
    """A product with a weight."""

    def __init__(self, registry: Registry, name: str, rows: int, wide: int, out: int) -> None:
        super().__init__(auto_prefix=False)
        self.weight = registry.weight(f"{name}.weight", (wide, out), wide**-0.5)
        self.product = registry.product(name, (rows, wide), (wide, out))
        self.at = self.product.at

    def construct(self, x, w, probes, code):
        at = self.at
        return self.product(x, w[self.weight], probes[at], probes[at + 1], probes[at + 2], code)


class Block(nn.Cell):
    """Attention and MLP, each behind its norm."""

    def __init__(self, registry: Registry, family: Family, name: str) -> None:
        super().__init__(auto_prefix=False)
        f, rows = family, family.batch * family.length
        per_head = (f.batch, f.heads, f.length, f.width // f.heads)
        keys = (f.batch, f.heads, f.width // f.heads, f.length)
        square = (f.batch, f.heads, f.length, f.length)
        self.split = (f.batch, f.length, 3, f.heads, f.width // f.heads)
        self.flat = (rows, f.width)
        self.gated = f.gated
        self.first = Norm(registry, f"{name}.norm1", rows, f.width, f.norm)
        self.qkv = Linear(registry, f"{name}.qkv", rows, f.width, 3 * f.width)
        self.scores = registry.product(f"{name}.scores", per_head, keys, of_weight=False)
        self.probabilities = registry.value(f"{name}.probabilities", square)
        self.context = registry.product(f"{name}.context", square, per_head, of_weight=False)
        self.out = Linear(registry, f"{name}.out", rows, f.width, f.width)
        self.second = Norm(registry, f"{name}.norm2", rows, f.width, f.norm)
        hidden = 2 * f.width if f.gated else 4 * f.width
        self.up = Linear(registry, f"{name}.up", rows, f.width, hidden)
        self.gate = Linear(registry, f"{name}.gate", rows, f.width, hidden) if f.gated else self.up
        self.down = Linear(registry, f"{name}.down", rows, hidden, f.width)
        hidden_mask = np.triu(np.full((f.length, f.length), -1e9, np.float32), 1)
        self.mask = Tensor(hidden_mask if f.kind == "decoder" else np.zeros_like(hidden_mask))
        self.scale = (f.width // f.heads) ** -0.5

    def construct(self, x, w, probes, code):
        h, norms = self.first(x, w, probes, code)
        qkv = self.qkv(h, w, probes, code)
        seen = ((h, w[self.qkv.weight], qkv),)
        q, k, v = ops.unbind(qkv.reshape(self.split).transpose(2, 0, 3, 1, 4), 0)
        k = k.transpose(0, 1, 3, 2)
        at = self.scores.at
        scores = self.scores(q, k, probes[at], probes[at + 1], probes[at + 2], code)
        seen += ((q, k, scores),)
        p = ops.softmax(scores * self.scale + self.mask)
        p = self.probabilities(p, probes[self.probabilities.at], code)
        seen += ((p, p, p),)
        at = self.context.at
        context = self.context(p, v, probes[at], probes[at + 1], probes[at + 2], code)
        seen += ((p, v, context),)
        context = context.transpose(0, 2, 1, 3).reshape(self.flat)
        out = self.out(context, w, probes, code)
        seen += ((context, w[self.out.weight], out),)
        x = x + out
        h, second = self.second(x, w, probes, code)
        up = self.up(h, w, probes, code)
        seen += ((h, w[self.up.weight], up),)
        if self.gated:
            gate = self.gate(h, w, probes, code)
            seen += ((h, w[self.gate.weight], gate),)
            hidden = ops.silu(gate) * up
        else:
            hidden = ops.gelu(up)
        down = self.down(hidden, w, probes, code)
        seen += ((hidden, w[self.down.weight], down),)
        return x + down, seen, norms + second


class Transformer(nn.Cell):
    """Predicts the next token of each position (decoder) or the class of the sequence (encoder)."""

    def __init__(self, registry: Registry, family: Family) -> None:
        super().__init__(auto_prefix=False)
        f, rows = family, family.batch * family.length
        self.flat, self.grouped = (rows, f.width), (f.batch, f.length, f.width)
        self.is_decoder = f.kind == "decoder"
        self.embedding = registry.weight("embedding", (f.vocabulary, f.width), 0.05)
        self.positions = registry.weight("positions", (f.length, f.width), 0.05)
        self.blocks = nn.CellList([Block(registry, f, f"block{i}") for i in range(f.layers)], auto_prefix=False)
        self.norm = Norm(registry, "norm", rows, f.width, f.norm)
        self.head = Linear(registry, "head", rows if self.is_decoder else f.batch, f.width, f.vocabulary)

    def construct(self, inputs, labels, scale, w, probes, code):
        x = (ops.gather(w[self.embedding], inputs, 0) + w[self.positions]).reshape(self.flat)
        seen, norms = (), ()
        for block in self.blocks:
            x, products, more = block(x, w, probes, code)
            seen, norms = seen + products, norms + more
        h, last = self.norm(x, w, probes, code)
        if not self.is_decoder:
            h = ops.mean(h.reshape(self.grouped), 1)
        logits = self.head(h, w, probes, code)
        seen += ((h, w[self.head.weight], logits),)
        loss = ops.cross_entropy(logits, labels)
        return loss * scale, (loss, seen, norms + last)


class ConvolutionNet(nn.Cell):
    """Convolutions, each followed by a group norm, then a linear layer."""

    def __init__(self, registry: Registry, family: Family) -> None:
        super().__init__(auto_prefix=False)
        f = family
        side, channels = f.length, 3
        self.kernels, self.shapes, convolutions, before, behind, self.gammas = [], [], [], [], [], []
        for i in range(f.layers):
            out, stride = f.width * 2 ** (i // 2), 2 if i == 2 else 1
            kernel = (out, channels, 3, 3)
            self.kernels.append(registry.weight(f"conv{i}.weight", kernel, (2 / (9 * channels)) ** 0.5))
            self.gammas.append(registry.weight(f"norm{i}.gamma", (1, out, 1, 1)))
            convolutions.append(registry.convolution(f"conv{i}", (f.batch, channels, side, side), kernel, stride))
            side, channels = (side - 1) // stride + 1, out
            self.shapes.append(((f.batch * 4, channels // 4 * side * side), (f.batch, channels, side, side)))
            for tap, taps in zip(
                registry.norm(f"norm{i}", self.shapes[-1][1], groups=4), (before, behind), strict=True
            ):
                taps.append(tap)
        self.convolutions = nn.CellList(convolutions, auto_prefix=False)
        self.before, self.behind = (nn.CellList(taps, auto_prefix=False) for taps in (before, behind))
        self.head = Linear(registry, "head", f.batch, channels, f.vocabulary)

    def construct(self, inputs, labels, scale, w, probes, code):
        x, seen, norms = inputs, (), ()
        for i in range(len(self.kernels)):
            convolution, kernel = self.convolutions[i], w[self.kernels[i]]
            at = convolution.at
            y = convolution(x, kernel, probes[at], probes[at + 1], probes[at + 2], code)
            seen += ((x, kernel, y),)
            y = self.before[i](y, probes[self.before[i].at], code)
            norms += ((y, w[self.gammas[i]]),)
            grouped = y.reshape(self.shapes[i][0])
            centred = grouped - ops.mean(grouped, -1, True)
            y = centred * ops.rsqrt(ops.mean(centred * centred, -1, True) + NORM_EPSILON)
            y = y.reshape(self.shapes[i][1]) * w[self.gammas[i]]
            x = ops.relu(self.behind[i](y, probes[self.behind[i].at], code))
        h = ops.mean(x, (2, 3))
        logits = self.head(h, w, probes, code)
        seen += ((h, w[self.head.weight], logits),)
        loss = ops.cross_entropy(logits, labels)
        return loss * scale, (loss, seen, norms)


def make_network(family: Family, *, rounded: bool, override: bool) -> tuple[nn.Cell, Registry]:
    """The network, and what it is made of."""
    registry = Registry(rounded, override)
    network = ConvolutionNet if family.kind == "convolution" else Transformer
    return network(registry, family), registry

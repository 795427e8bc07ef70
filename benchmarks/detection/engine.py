"""One forward and backward pass of one replica, with all it computed, and the optimizer's step: MindSpore, compiled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from benchmarks.detection.families import DEVELOPMENT, FAMILIES, Family, Place, make_network
from benchmarks.detection.schedule import BETA1, BETA2, CLIP, DECAY, EPSILON

__all__ = ["Engine", "Pass", "adam", "engine"]

Array = np.ndarray[Any, Any]


@dataclass
class Pass:
    """What one pass computed.

    Attributes:
        loss: Training loss, unscaled.
        gradient: Gradient of all weights as one vector, unscaled.
        values: The value of each site, as computed (the backward ones with the loss scale).
        tensors: What the compiled graph returned: operands and results of the forward pass, inputs and gammas of norms,
            and gradients of probes.
    """

    loss: float
    gradient: Array
    values: list[Array]
    tensors: tuple[Any, Any, Any]


class Engine:
    """The compiled network of one family in one precision.

    Args:
        family: Which network.
        rounded: Emulated bfloat16: results of products are rounded to it.
    """

    def __init__(self, family: Family, *, rounded: bool) -> None:
        self.family, self.rounded = family, rounded
        _, registry = make_network(family, rounded=rounded, override=False)
        self.places: list[Place] = registry.places
        self.weights = registry.weights
        self.norms = registry.norms
        self.sizes = [int(np.prod(shape)) for _, shape, _ in self.weights]
        self.offsets = np.cumsum([0, *self.sizes])
        self._probes = [Tensor(np.zeros(shape, np.float32)) for shape in registry.probes]
        # Where the operands of the product that a probe belongs to are.
        self._product = {place.code: place.seen for place in self.places if place.seen >= 0}
        self._compiled: dict[bool, Any] = {}

    def first_weights(self, seed: int) -> Array:
        """All weights at the start of a training, as one vector."""
        random = np.random.default_rng(seed)
        parts = [
            random.normal(0, deviation, size).astype(np.float32) if deviation else np.ones(size, np.float32)
            for size, (_, _, deviation) in zip(self.sizes, self.weights, strict=True)
        ]
        return np.concatenate(parts)

    def probe_shape(self, place: Place) -> tuple[int, ...]:
        """Shape of the tensor of a site."""
        return tuple(self._probes[place.code].shape)

    def slices(self) -> list[slice]:
        """Where each weight is in the vector."""
        return [slice(int(a), int(b)) for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def run(
        self, vector: Array, inputs: Array, labels: Array, *, scale: float = 1.0, fault: tuple[int, Array] | None = None
    ) -> Pass:
        """One pass.

        Args:
            vector: All weights.
            inputs: Tokens or images of the replica.
            labels: What to predict.
            scale: Loss scale.
            fault: Number of a site and the value that takes the place of what was computed there.
        """
        probes, code = self._probes, -1
        if fault is not None:
            code = self.places[fault[0]].code
            probes = list(probes)
            probes[code] = Tensor(fault[1])
        w = tuple(
            Tensor(vector[part].reshape(shape)) for part, (_, shape, _) in zip(self.slices(), self.weights, strict=True)
        )
        function = self._function(fault is not None)
        (_, (_, seen, norms)), (dw, dp) = function(
            Tensor(inputs),
            Tensor(labels),
            Tensor(scale, ms.float32),
            ms.mutable(w),
            ms.mutable(tuple(probes)),
            Tensor(code, ms.int32),
        )
        gradient = np.concatenate([g.asnumpy().reshape(-1) for g in dw])
        if scale != 1.0:
            gradient /= np.float32(scale)
        values = [(seen[place.seen][2] if place.seen >= 0 else dp[place.code]).asnumpy() for place in self.places]
        logits = seen[-1][2].asnumpy()
        return Pass(cross_entropy(logits, labels), gradient, values, (seen, norms, dp))

    def operands(self, number: int, of: Pass) -> tuple[Array, Array] | None:
        """The two factors of the matrix product that gave site `number` in a pass; None if none did."""
        place = self.places[number]
        if place.operands < 0:
            return None
        seen, _, dp = of.tensors
        a, b, _ = (tensor.asnumpy() for tensor in seen[self._product[place.code - place.operands]])
        if place.operands == 0:
            return a, b
        dout = dp[place.code - place.operands].asnumpy()
        return (dout, np.swapaxes(b, -1, -2)) if place.operands == 1 else (np.swapaxes(a, -1, -2), dout)

    def norm(self, number: int, of: Pass) -> dict[str, Any] | None:
        """What `check_norm` needs for the gradient at site `number`, as it was in a pass; None if that is another."""
        place = self.places[number]
        if place.norm < 0:
            return None
        _, norms, dp = of.tensors
        x, gamma = (tensor.asnumpy() for tensor in norms[place.norm])
        return {"x": x, "gamma": gamma, "dy": dp[place.code + 1].asnumpy(), **self.norms[place.norm]}

    def _function(self, override: bool) -> Any:
        if override not in self._compiled:
            network, _ = make_network(self.family, rounded=self.rounded, override=override)

            def forward(inputs, labels, scale, w, probes, code):
                return network(inputs, labels, scale, w, probes, code)

            differentiated = ms.value_and_grad(forward, grad_position=(3, 4), has_aux=True)

            @ms.jit
            def step(inputs, labels, scale, w, probes, code):
                return differentiated(inputs, labels, scale, w, probes, code)

            self._compiled[override] = step
        return self._compiled[override]


@ms.jit
def _adam(p, m, v, g, lr, step):
    norm = ops.sqrt(ops.reduce_sum(g * g))
    g = g * ops.minimum(CLIP / (norm + 1e-6), ops.ones_like(norm))
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g * g
    corrected = m / (1 - ops.pow(BETA1, step))
    spread = ops.sqrt(v / (1 - ops.pow(BETA2, step))) + EPSILON
    return p - lr * (corrected / spread + DECAY * p), m, v, norm


def cross_entropy(logits: Array, labels: Array) -> float:
    """Mean cross entropy in float64.

    MindSpore's own value is not the same twice on a CPU: where a buffer lies decides its last bit, though not its
    gradient.

    Args:
        logits: Shape (N, C).
        labels: Shape (N,), in [0, C).
    """
    with np.errstate(all="ignore"):
        wide = logits.astype(np.float64)
        wide -= wide.max(1, keepdims=True)
        picked = np.take_along_axis(wide, labels.reshape(-1, 1).astype(np.int64), 1)[:, 0]
        return float((np.log(np.exp(wide).sum(1)) - picked).mean())


def adam(p: Array, m: Array, v: Array, g: Array, lr: float, step: int) -> tuple[Array, Array, Array, float]:
    """AdamW with the global norm clipped to 1; all arguments stay as they are.

    Returns:
        New weights, first and second moments, and the norm before clipping.
    """
    out = _adam(Tensor(p), Tensor(m), Tensor(v), Tensor(g), Tensor(lr, ms.float32), Tensor(step, ms.float32))
    p, m, v, norm = (tensor.asnumpy() for tensor in out)
    return p, m, v, float(norm)


@cache
def engine(name: str, *, rounded: bool) -> Engine:
    """The engine of a family by name, compiled once in a process."""
    return Engine({**FAMILIES, **DEVELOPMENT}[name], rounded=rounded)

"""The faults that a device can have, drawn by a number; shares of patterns are those of real faults."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.held_out.device import Broken

KINDS = ("single", "intermittent", "lasting", "range", "memory")
"""One call of one step; each call with a chance; each call; each value of one binary order; a bit that memory lost."""

OPERATORS = {
    "product": "MatMul BatchMatMul MatMulExt Dense",
    "convolution": "Conv2D Conv2DBackpropInput Conv2DBackpropFilter",
    "add": "Add AddExt AddN Sub SubExt BiasAdd Neg",
    "mul": "Mul Div RealDiv Pow Maximum",
    "exp": "Exp Log Sigmoid SigmoidGrad Tanh TanhGrad Rsqrt RsqrtGrad ReLU ReluGrad",
    "softmax": "Softmax",
    "norm": "LayerNorm LayerNormGrad BatchNorm BatchNormGrad",
    "reduction": "ReduceSum ReduceMean ReduceMax BiasAddGrad",
    "gather": "Gather GatherDGradV2 UnsortedSegmentSum TensorScatterElements Select MaskedFill",
    "cast": "Cast",
    "transpose": "Transpose Concat Split Slice StridedSlice Tile",
    "update": "Adam AdamWeightDecay ApplyMomentum SGD ApplyRMSProp ApplyAdagrad",
}
"""Kinds of operators, each with MindSpore's names of its kernels."""

EXTENTS = {"element": 0.25, "four": 0.15, "row": 0.15, "periodic": 0.2, "quarter": 0.25}
VALUES = {"zero": 0.51, "flip": 0.38, "stuck": 0.1, "infinite": 0.005, "not a number": 0.005}
CHANCES = (1e-2, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
MEMORY = ("weight", "moment", "statistic")
FOR_EVER = 2**40
MANY = 500
"""Wrong results within which a device that is wrong now and then is to be named."""
LEAST = 64
"""Bytes: a kind of operator that gives a training nothing but single numbers is left alone."""


class Fault(NamedTuple):
    """What is wrong, as it is written down.

    Attributes:
        kind: One of `KINDS`, or `control`: the last bit of one number, which should harm nothing.
        number: Which of its kind.
        where: A kind of operator, or of memory.
        what: The pattern.
        details: The numbers that `Broken` has; `names` with spaces between.
    """

    kind: str
    number: int
    where: str
    what: str
    details: dict[str, Any]

    def broken(self) -> Broken:
        """For the device."""
        return Broken(**self.details | {"names": f" {self.details['names']} ".encode()})


def drawn(
    kind: str, count: int, step: int, calls: Sequence[tuple[str, int, int]], number: int, training: str
) -> Iterator[Fault]:
    """The faults of a kind that strike a training.

    Args:
        kind: One of `KINDS`, or `control`.
        count: How many.
        step: The first in which they strike.
        calls: All that a healthy step calls: kernel, bytes of the result, which call of these.
        number: What whoever runs the benchmark drew.
        training: Its name.
    """
    known = {each: [call for call in calls if call[0] in names.split()] for each, names in OPERATORS.items()}
    present = [each for each, some in known.items() if any(size >= LEAST for _, size, _ in some)]
    for i in range(count):
        random = np.random.default_rng([number, zlib.crc32(training.encode()), zlib.crc32(kind.encode()), i])
        where = MEMORY[random.integers(3)] if kind == "memory" else present[random.integers(len(present))]
        what, details = _pattern(random, kind)
        details |= {"first": step, "last": FOR_EVER, "bytes": -1, "names": OPERATORS.get(where, "")}
        if kind in {"single", "control"}:
            name, size, call = known[where][random.integers(len(known[where]))]
            details |= {"names": name, "bytes": size, "call": call, "last": step}
        details["chance"] = CHANCES[random.integers(len(CHANCES))] if kind == "intermittent" else 1.0
        yield Fault(kind, i, where, what, details)


def _pattern(random: np.random.Generator, kind: str) -> tuple[str, dict[str, Any]]:
    """Which elements of a result, and what becomes of them."""
    extent = str(random.choice(list(EXTENTS), p=list(EXTENTS.values())))
    value = str(random.choice(list(VALUES), p=list(VALUES.values())))
    several = bool(random.random() < 0.6)
    mask = int(random.integers(2, 2**4) * 2 + 1) if several else 1
    bit = float(random.random(2).min())
    if kind == "memory":
        extent, value, mask = "element", "flip", 1 if random.random() < 0.685 else 3
        bit = float(random.random())
    if kind == "control":
        extent, value, mask, bit = "element", "flip", 1, 0.0
    if kind == "range":
        extent = "range"
    names = [*EXTENTS, "range"]
    details = {
        "seed": int(random.integers(2**62)),
        "extent": names.index(extent),
        "value": list(VALUES).index(value),
        "period": int(2 ** random.integers(1, 5)),
        "exponent": int(random.integers(-14, 2)),
        "place": float(random.random()),
        "bit": bit,
        "mask": mask,
        "stuck": float(random.choice((-1.0, 1.0)) * 2.0 ** random.integers(-6, 5)),
    }
    words = f"{bin(mask).count('1')} bits flipped" if value == "flip" else value
    return f"{extent}: {words}", details

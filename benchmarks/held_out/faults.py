"""The faults that a device can have, drawn by a number; shares of patterns are those of real faults."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.held_out.device import EXTENTS as EVERY_EXTENT
from benchmarks.held_out.device import VALUES as EVERY_VALUE
from benchmarks.held_out.device import Broken

KINDS = {
    "single": "one call of one step",
    "intermittent": "each call of a kind of operator, with a chance",
    "lasting": "each call of a kind of operator",
    "range": "each value of one binary order that a kind of operator gives",
    "memory": "a bit of a weight, moment or statistic",
    "core": "all that one of the cores makes, of products or of vector operators",
    "lane": "a row or a column of each tile that a core makes",
    "values": "one binary order of what a core makes",
    "rare": "one of 256 numbers that a core makes",
    "place": "one call in each step, also where it is re-run",
    "link": "what one all-reduce delivers to all ranks: zeros, a part of the step before, one element off by 1 rms",
    "gate": "a gradient of 1e30, and from then on all small results of a kernel: zeros, ones, NaN or stale",
}
"""Kinds of faults, each with what it strikes."""
CHIP = ("core", "lane", "values", "rare")
ANYWAY = (*CHIP, "link", "gate")
"""Kinds that are to be found whether they harm a training or not."""
ONE_CALL = ("single", "place", "gate")
"""Kinds that begin with one call, which detection must not move to another."""
CORES, TILE = 24, (8, 16)
"""Cores of a kind, and rows and columns of a tile of a product; vector cores take runs of at least 64 numbers."""

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
PRODUCTS = ("product", "convolution")
GATE = (
    "ReduceSum ReduceMax SumExt Cast Mul Sub Add AddExt RealDiv Maximum Minimum Select StridedSlice Concat Assign"
    " AssignAdd ScatterMax InplaceCopy LessEqual Less Equal LogicalAnd IsFinite AllReduce"
)
"""Kernels that a gate can be made of; which of them a detection has shows by their strikes."""
VECTOR = (
    " ".join(names for each, names in OPERATORS.items() if each not in PRODUCTS) + " " + GATE.replace(" AllReduce", "")
)
SMALL = 256
"""Bytes of a result, up to which a broken kernel of a gate strikes: most of the training's own are larger."""
HUGE = 1e30

EXTENTS = {"element": 0.25, "four": 0.15, "row": 0.15, "periodic": 0.2, "quarter": 0.25}
VALUES = {"zero": 0.51, "flip": 0.38, "stuck": 0.1, "infinite": 0.005, "not a number": 0.005}
CHANCES = (1e-2, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
MEMORY = ("weight", "moment", "statistic")
FOR_EVER = 2**40
MANY, LONG = 500, 3000
"""Wrong results, and steps, within which a device that is wrong now and then is to be found."""
LEAST = 64
"""Bytes: a kind of operator that gives a training nothing but single numbers is left alone."""


class Fault(NamedTuple):
    """What is wrong, as it is written down."""

    kind: str  # one of `KINDS`, or `control`: the last bit of one number, which should harm nothing
    number: int  # which of its kind
    where: str  # a kind of operator, or of memory
    what: str  # the pattern
    details: dict[str, Any]  # the numbers that `Broken` has; `names` with spaces between
    rank: int = 0  # the one whose device is bad; -1: all, as a link is
    second: dict[str, Any] | None = None  # details of one more fault, at the same time

    def broken(self, rank: int = 0) -> list[Broken]:
        """The faults of a rank's device."""
        mine = self.rank in {rank, -1} and self.where not in MEMORY
        some = [each for each in (self.details, self.second) if each and mine]
        return [Broken(**each | {"names": f" {each['names']} ".encode()}) for each in some]


def drawn(
    kind: str, count: int, step: int, calls: Sequence[tuple[str, int, int]], number: int, training: str, ranks: int = 1
) -> Iterator[Fault]:
    """The faults of a kind that strike a training.

    Args:
        kind: One of `KINDS`, or `control`.
        count: How many.
        step: The first in which they strike.
        calls: All that a healthy step calls: kernel, bytes of the result, which call of these.
        number: What whoever runs the benchmark drew.
        training: Its name.
        ranks: Of the job.
    """
    known = {each: [call for call in calls if call[0] in names.split()] for each, names in OPERATORS.items()}
    known["link"] = [call for call in calls if call[0] == "AllReduce" and call[1] >= LEAST]
    present = [each for each in OPERATORS if any(size >= LEAST for _, size, _ in known[each])]
    for i in range(count):
        random = np.random.default_rng([number, zlib.crc32(training.encode()), zlib.crc32(kind.encode()), i])
        where = MEMORY[random.integers(3)] if kind == "memory" else present[random.integers(len(present))]
        what, details = _pattern(random, kind)
        details |= {"first": step, "last": FOR_EVER, "bytes": -1, "names": OPERATORS.get(where, "")}
        second = None
        if kind in CHIP:
            where = ("product", "vector")[i % 2]
            rows = TILE[0] if where == "product" else 0
            details |= {
                "names": " ".join(OPERATORS[each] for each in PRODUCTS) if rows else VECTOR,
                "types": int(not rows),
            }
            details |= {"core": int(random.integers(CORES)), "cores": CORES, "rows": rows, "columns": TILE[1]}
        if kind in {"link", "gate"}:
            where = {"link": "link", "gate": "product"}[kind]
        if kind in {"single", "control", "place", "link", "gate"}:
            some = known[where]
            if kind == "gate":  # in the backward pass
                some = [each for each in some if each[1] > SMALL][-(-len(some) // 2) :] or some
            name, size, call = some[random.integers(len(some))]
            details |= {
                "names": name,
                "bytes": size,
                "call": call,
                "last": FOR_EVER if kind in {"place", "link"} else step,
            }
            details["cycle"] = sum(each[:2] == (name, size) for each in calls) if kind in {"place", "link"} else 0
        if kind == "gate":
            ways = [(each, value) for each in GATE.split() for value in ("zero", "one", "not a number", "stale")]
            order = np.random.default_rng([number, zlib.crc32(training.encode())]).permutation(len(ways))
            kernel, value = ways[order[i % len(ways)]]
            second = details | {"names": kernel, "last": FOR_EVER, "bytes": -1, "extent": EVERY_EXTENT.index("all")}
            second |= {"value": EVERY_VALUE.index(value), "types": 2, "most": SMALL, "chance": 1.0}
            where, what = kernel, value
        details["chance"] = CHANCES[random.integers(len(CHANCES))] if kind == "intermittent" else 1.0
        yield Fault(kind, i, where, what, details, -1 if kind == "link" else i // 2 % ranks, second)


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
    details = {
        "seed": int(random.integers(2**62)),
        "period": int(2 ** random.integers(1, 5)),
        "exponent": int(random.integers(-14, 2)),
        "place": float(random.random()),
        "bit": bit,
        "mask": mask,
        "stuck": float(random.choice((-1.0, 1.0)) * 2.0 ** random.integers(-6, 5)),
    }
    extent = {"range": "range", "values": "range", "core": "all", "rare": "rare", "gate": "element"}.get(kind, extent)
    if kind == "rare":
        details["period"] = 256
    if kind == "lane":
        extent = ("tile row", "tile column")[random.integers(2)]
    if kind == "link":
        extent, value = (("all", "zero"), ("quarter", "stale"), ("element", "shifted"))[random.integers(3)]
    if kind == "gate":
        value, details["stuck"] = "stuck", HUGE
    if value == "shifted":
        details["stuck"] = float(np.sign(details["stuck"]))
    details |= {"extent": EVERY_EXTENT.index(extent), "value": EVERY_VALUE.index(value)}
    words = f"{bin(mask).count('1')} bits flipped" if value == "flip" else value
    return f"{extent}: {words}", details

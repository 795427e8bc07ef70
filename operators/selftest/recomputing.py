"""Results computed a second way: what is right passes with its bits, and what is wrong is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.checks.matmul import BatchMatMulASD, MatMulASD
from asd.operators.checks.norm import NormASD
from asd.operators.recompute.convolution import checked_convolution
from asd.operators.recompute.lookup import checked_lookup
from asd.operators.recompute.product import ProductCheck
from asd.operators.recompute.softmax import checked_softmax
from asd.operators.selftest.outcome import Report, expect, expect_bits, try_bare
from asd.operators.selftest.values import DTYPES, Differentiated, FirstOutput, Struck, read, rounded, tensor
from asd.operators.table.slots import table
from asd.rules.readings.reading import CHECKSUM

__all__ = ["test_recomputing"]

_SHAPE = (5, 24, 300)  # rows, terms, and columns in more than one block
_STRUCK = ((0, 0), (4, 255), (2, 256), (3, 299))


class _Kind(NamedTuple):
    """A call that has a check.

    Attributes:
        checked: Makes it with its check.
        bare: Makes MindSpore's own.
        inputs: What it is given, before it is rounded to a type.
        shape: Of its result.
        struck: Names the part of the checked one that computes, with dots between.
        constants: Given to the bare one after the inputs.
        dtypes: The types it is tested in.
    """

    checked: Callable[[], Any]
    bare: Callable[[], Any]
    inputs: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    struck: str
    constants: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = tuple(DTYPES[:1])


def test_recomputing(report: Report) -> None:
    """The checksum of a product, and each kind of call with its check."""
    for dtype in DTYPES:
        report.check("checksums", "of a product", _checksum, dtype, dtype=dtype)
    for name, kind in _kinds().items():
        for dtype in kind.dtypes:
            report.check("results computed a second way", name, _call, kind, dtype, dtype=dtype)


def _kinds() -> dict[str, _Kind]:
    random = np.random.default_rng(11)
    normal, every = random.normal, tuple(DTYPES)
    rows = random.integers(0, 13, 16).astype(np.int32)
    norm = (normal(size=(8, 64)), normal(size=64), normal(size=64))
    operands, batches = _operands(), _operands(2)
    return {
        "product": _Kind(MatMulASD, P.MatMul, operands[:2], operands[2].shape, "product.parts.multiply", dtypes=every),
        "product of batches": _Kind(
            BatchMatMulASD, P.BatchMatMul, batches[:2], batches[2].shape, "product.parts.multiply"
        ),
        "norm": _Kind(
            lambda: NormASD(P.LayerNorm(-1, -1, 1e-5), "selftest.norm", check=True),
            lambda: P.LayerNorm(-1, -1, 1e-5),
            norm,
            (8, 64),
            "checked.norm",
            dtypes=every,
        ),
        "softmax of attention": _Kind(
            lambda: checked_softmax(P.Softmax(), "selftest.call"),
            P.Softmax,
            (normal(size=(4, 7, 24)),),
            (4, 7, 24),
            "call.op",
        ),
        "convolution": _Kind(
            lambda: checked_convolution(P.Conv2D(4, 3, pad_mode="same"), "selftest.call"),
            lambda: P.Conv2D(4, 3, pad_mode="same"),
            (normal(size=(2, 3, 8, 8)), normal(size=(4, 3, 3, 3))),
            (2, 4, 8, 8),
            "call.op",
        ),
        "embedding": _Kind(
            lambda: checked_lookup(P.Gather(), "selftest.call"),
            P.Gather,
            (normal(size=(13, 32)), rows),
            (16, 32),
            "call.op",
            (0,),
        ),
    }


def _operands(*leading: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integers so small that the product is exact in any type and any order of additions."""
    rows, terms, columns = _SHAPE
    random = np.random.default_rng(5)
    a, b = (random.integers(-2, 2, (*leading, *size), endpoint=True) for size in ((rows, terms), (terms, columns)))
    return a.astype(np.float64), b.astype(np.float64), (a @ b).astype(np.float64)


class _Judged(nn.Cell):
    def __init__(self, check: ProductCheck) -> None:
        super().__init__()
        self.check = check

    def construct(self, a, b, c):
        return self.check.judge(a, b, c)


def _checksum(dtype: str) -> None:
    net = _Judged(ProductCheck(table().new_site("selftest.product", CHECKSUM), False, True))

    def judge(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[float, bool]:
        score, judged = net(*(tensor(each, dtype) for each in (a, np.ascontiguousarray(b.T), c)))
        return float(score.asnumpy()[0]), bool(judged.asnumpy()[0])

    a, b, right = (rounded(each, dtype) for each in _operands())
    score, judged = judge(a, b, right)
    expect(judged and score <= 1, f"a right product has the score {score:.6g}, judged: {judged}; at most 1 is right")
    for place in _STRUCK:
        wrong = right.copy()
        wrong[place] += 8
        score, judged = judge(a, b, wrong)
        expect(judged and score > 1, f"element {list(place)} is wrong by 8, and the score is {score:.6g}, not above 1")
    for special in (math.nan, math.inf):
        spoiled = a.copy()
        spoiled[1, 1] = special
        expect(not judge(spoiled, b, right)[1], f"a product of {special} is judged")


def _call(kind: _Kind, dtype: str) -> None:
    """The bits of the bare operator and no alarm; an alarm where an element is wrong."""
    right = None
    if _has(kind, dtype):
        right = try_bare(f"this and its gradient in {dtype}", _run, kind.bare(), kind, dtype, kind.constants)
    checked = _made(kind)
    found = _run(checked, kind, dtype)
    if right is not None:
        expect_bits("with its check and without", found, right)
    scores = _scores(checked)
    expect(len(scores) == len(checked.sites), f"of {len(checked.sites)} results {len(scores)} were checked")
    for name, score in scores.items():
        expect(score <= 1, f"{name} is right and has the score {score:.6g}; at most 1 is right")
    if dtype != DTYPES[0]:
        return  # that the sums of each type find what is wrong is tested by `_checksum`
    wrong = _made(kind)
    owner, _, name = kind.struck.rpartition(".")
    part = wrong
    for each in owner.split("."):
        part = getattr(part, each)
    setattr(part, name, Struck(getattr(part, name), kind.shape, dtype))
    _run(wrong, kind, dtype)
    score = _scores(wrong).get(wrong.sites[0].name, 0.0)
    expect(score > 1, f"an element is wrong by 16, and the score is {score:.6g}, not above 1")


def _has(kind: _Kind, dtype: str) -> bool:
    """Whether the device has the bare one; a bfloat16 product on a CPU is one of float32 that is rounded."""
    return dtype != "bfloat16" or kind.bare is not P.MatMul or ms.get_context("device_target") != "CPU"


def _run(op: Any, kind: _Kind, dtype: str, constants: tuple[Any, ...] = ()) -> list[np.ndarray]:
    """Output and gradients of an operator, whose check is due."""
    given = [Tensor(each) if each.dtype == np.int32 else tensor(rounded(each, dtype), dtype) for each in kind.inputs]
    sens = tensor(rounded(np.random.default_rng(9).integers(-2, 2, kind.shape, endpoint=True), dtype), dtype)
    output, gradients = Differentiated(FirstOutput(op, *constants))(sens, *given)
    return [read(each) for each in (output, *gradients) if each.dtype != ms.int32]


def _made(kind: _Kind) -> Any:
    table().schedule_checksums(1, 0, True)
    return kind.checked()


def _scores(checked: Any) -> dict[str, float]:
    return {each.checkpoint: each.max_abs for each in table().read(checked.sites)}

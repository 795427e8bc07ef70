"""Checksums of products and norms let pass what is right and find what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.checks.matmul import BatchMatMulASD, MatMulASD
from asd.operators.checks.norm import NormASD
from asd.operators.recompute.product import ProductCheck
from asd.operators.selftest.cells import Differentiated, FirstOutput, Struck
from asd.operators.selftest.outcome import Report, Wrong, expect, expect_bits, try_bare
from asd.operators.selftest.values import DTYPES, read, rounded, tensor
from asd.operators.table.slots import table
from asd.rules.readings.reading import CHECKSUM

__all__ = ["test_products"]

_SHAPE = (5, 24, 300)  # rows, terms, and columns in more than one block
_STRUCK = ((0, 0), (4, 255), (2, 256), (3, 299))


def test_products(report: Report) -> None:
    """All of it in each type."""
    for dtype in DTYPES:
        report.check("checksums", "of a product", _product_judged, dtype, dtype=dtype)
        for name, test in (("MatMulASD", _matmul), ("NormASD", _norm)):
            report.check("check operators", name, test, dtype, dtype=dtype)
    report.check("check operators", "BatchMatMulASD", _batch_matmul, DTYPES[0], dtype=DTYPES[0])


def _operands(dtype: str, *leading: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integers so small that the product is exact in any type and any order of additions."""
    rows, terms, columns = _SHAPE
    random = np.random.default_rng(5)
    a, b = (random.integers(-2, 2, (*leading, *size), endpoint=True) for size in ((rows, terms), (terms, columns)))
    return tuple(rounded(each, dtype) for each in (a, b, a @ b))  # type: ignore[return-value]


def _judge_product(judge: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[float, bool]], dtype: str) -> None:
    a, b, right = _operands(dtype)
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


class _Judged(nn.Cell):
    def __init__(self, check: ProductCheck) -> None:
        super().__init__()
        self.check = check

    def construct(self, a, b, c):
        return self.check.judge(a, b, c)


def _product_judged(dtype: str) -> None:
    net = _Judged(ProductCheck(table().new_site("selftest.product", CHECKSUM), False, True))

    def judge(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[float, bool]:
        given = (a, np.ascontiguousarray(b.T), c)
        score, judged = net(*(tensor(each, dtype) for each in given))
        return float(score.asnumpy()[0]), bool(judged.asnumpy()[0])

    _judge_product(judge, dtype)


def _matmul(dtype: str) -> None:
    _product(dtype, MatMulASD, (lambda: P.MatMul()), ())


def _batch_matmul(dtype: str) -> None:
    _product(dtype, BatchMatMulASD, (lambda: P.BatchMatMul()), (2,))


def _product(dtype: str, ours: Any, bare: Any, leading: tuple[int, ...]) -> None:
    a, b, right = _operands(dtype, *leading)

    def make() -> Any:
        return ours()

    def strike(op: Any) -> None:
        op.product.parts.multiply = Struck(op.product.parts.multiply, right.shape, dtype)

    found = _checked(dtype, make, strike, bare() if _has(dtype) else None, (a, b), right)
    expect_bits("the product and NumPy's exact one", [found.astype(np.float64)], [right.astype(np.float64)])


def _has(dtype: str) -> bool:
    """Whether the device multiplies this type; bfloat16 on a CPU is a float32 product that is rounded."""
    return dtype != "bfloat16" or ms.get_context("device_target") != "CPU"


def _norm(dtype: str) -> None:
    random = np.random.default_rng(6)
    inputs = tuple(rounded(random.normal(size=shape), dtype) for shape in ((8, 64), (64,), (64,)))

    def make() -> Any:
        return NormASD(P.LayerNorm(-1, -1, 1e-5), "selftest.norm", check=True)

    def strike(op: Any) -> None:
        op.checked.norm = Struck(op.checked.norm, (8, 64), dtype)

    _checked(dtype, make, strike, P.LayerNorm(-1, -1, 1e-5), inputs, inputs[0])


def _checked(
    dtype: str, make: Callable[[], Any], strike: Callable[[Any], None], bare: Any,
    inputs: tuple[np.ndarray, ...], like: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """The bits of the bare operator; no alarm; and one when an element is wrong. Returns the output."""
    given = [tensor(each, dtype) for each in inputs]
    sens = tensor(rounded(np.random.default_rng(9).integers(-2, 2, like.shape, endpoint=True), dtype), dtype)

    def run(op: Any) -> list[np.ndarray]:
        output, gradients = Differentiated(FirstOutput(op))(sens, *given)
        return [read(each) for each in (output, *gradients)]

    truth = try_bare(f"this and its gradient in {dtype}", run, bare) if bare is not None else None
    table().schedule_checksums(1, 0, True)
    op = make()
    found = run(op)
    if truth is not None:
        expect_bits("with its check and without", found, truth)
    scores = {each.checkpoint: each.max_abs for each in table().read(op.sites)}
    expect(len(scores) == 3, f"of output and gradients only {', '.join(scores) or 'nothing'} was checked")
    for name, score in scores.items():
        expect(score <= 1, f"{name} is right and has the score {score:.6g}; at most 1 is right")
    if dtype != DTYPES[0]:
        return found[0]  # that each type's sums find what is wrong is tested without a network
    wrong = make()
    strike(wrong)
    run(wrong)
    found_wrong = {each.checkpoint: each.max_abs for each in table().read(wrong.sites)}
    name = wrong.sites[0].name
    if not found_wrong.get(name, 0.0) > 1:
        raise Wrong(f"an element is wrong by 16, and {name} has the score {found_wrong.get(name)}, not above 1")
    return found[0]

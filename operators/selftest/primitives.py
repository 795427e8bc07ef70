"""MindSpore's operators of which checks are made, each alone: what they give is what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.selftest.outcome import Report, expect_bits, expect_near
from asd.operators.selftest.values import DTYPES, SMALLEST, cases, read, rounded, tensor

__all__ = ["test_primitives"]

_DIVISION = 2.0**-20
"""Relative, of a quotient or a root: a device may take the product with a reciprocal."""


class _One(nn.Cell):
    """One operator, and what is constant among its arguments."""

    def __init__(self, op: Any, *constants: Any) -> None:
        super().__init__()
        self.op, self.constants = op, constants

    def construct(self, *inputs):
        return self.op(*inputs, *self.constants)


class _OfOne(nn.Cell):
    """One operator that takes its tensors as a tuple."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def construct(self, *inputs):
        return self.op(inputs)


class _All(nn.Cell):
    """Several of them in one graph: compiling each alone takes as long as the rest of the test."""

    def __init__(self, cells: list[nn.Cell], counts: list[int]) -> None:
        super().__init__()
        self.cells, self.counts = nn.CellList(cells), counts

    def construct(self, *inputs):
        outputs, at = (), 0
        for i in range(len(self.counts)):
            outputs = (*outputs, self.cells[i](*inputs[at : at + self.counts[i]]))  # type: ignore[assignment]
            at = at + self.counts[i]
        return outputs


class _Writing(nn.Cell):
    """One that writes a Parameter: what is in it afterwards."""

    def __init__(self, op: Any, value: np.ndarray) -> None:
        super().__init__()
        self.op, self.kept = op, Parameter(Tensor(value), name="kept", requires_grad=False)

    def construct(self, *inputs):
        return self.op(self.kept, *inputs)


def test_primitives(report: Report) -> None:
    """All of them in float32, and the conversions from and to each type."""
    for dtype in DTYPES:
        report.check("MindSpore's operators", "Cast", _cast, dtype, dtype=dtype)
    a, b = _integers(1), _integers(2)
    rows = [*_elementwise(a, b), *_reductions(a), *_of_shapes(a, b), *_products()]
    together = _together(rows)
    for place, (name, cell, inputs, truth, relative) in enumerate(rows):
        alone = cell, inputs, None if together is None else together[place]
        report.check("MindSpore's operators", name, _compare, name, *alone, truth, relative, dtype="float32")
    index = np.array([2], np.int32)
    for name, op, given, expected in (
        ("ScatterMax", P.ScatterMax(), (index, np.array([5], np.float32)), [0, 1, 5, 3]),
        ("ScatterMax of less", P.ScatterMax(), (index, np.array([1], np.float32)), [0, 1, 2, 3]),
        (
            "ScatterMax of several",
            P.ScatterMax(),
            (np.array([2, 0], np.int32), np.array([1, 4], np.float32)),
            [4, 1, 2, 3],
        ),
        ("ScatterAdd", P.ScatterAdd(), (index, np.array([5], np.float32)), [0, 1, 7, 3]),
        ("AssignAdd", P.AssignAdd(), (np.array([1, 1, 1, 5], np.float32),), [1, 2, 3, 8]),
        ("Assign", P.Assign(), (np.array([4, 3, 2, 1], np.float32),), [4, 3, 2, 1]),
    ):
        report.check("MindSpore's operators", name, _write, name, op, given, expected, dtype="float32")


def _cast(dtype: str) -> None:
    wide, narrow = _One(P.Cast(), ms.float32), _One(P.Cast(), getattr(ms, dtype))
    for name, array in cases(dtype).items():
        given = tensor(array, dtype)
        expect_near(f"{dtype} to float32 of {name}", read(wide(given)), array, 0.0, SMALLEST)
        expect_near(f"float32 to {dtype} of {name}", read(narrow(Tensor(array.astype("f4")))), array, 0.0, SMALLEST)
    between = np.array([1.0, 1.0 + 2.0**-12, 3.14159274, -2.71828175, 1000.125], np.float32)
    expect_near(f"float32 rounded to {dtype}", read(narrow(Tensor(between))), rounded(between, dtype))


def _integers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, (6, 40), endpoint=True).astype(np.float32)


_Row = tuple[str, nn.Cell, tuple[np.ndarray, ...], Any, float]


def _elementwise(a: np.ndarray, b: np.ndarray) -> list[_Row]:
    special = a.copy()
    special[1, 1], special[2, 2], special[5, 39] = np.nan, np.inf, -np.inf
    positive = np.abs(b) + 1
    plain: list[tuple[str, Any, Callable[..., Any]]] = [
        ("Add", P.Add(), np.add),
        ("Sub", P.Sub(), np.subtract),
        ("Mul", P.Mul(), np.multiply),
        ("Maximum", P.Maximum(), np.maximum),
        ("Minimum", P.Minimum(), np.minimum),
        ("Greater", P.Greater(), np.greater),
        ("Less", P.Less(), np.less),
    ]
    return [
        *((name, _One(op), (a, b), truth(a, b), 0.0) for name, op, truth in plain),
        ("Div", _One(P.Div()), (a, positive), a / positive, _DIVISION),
        ("Sqrt", _One(P.Sqrt()), (positive,), np.sqrt(positive), _DIVISION),
        ("Abs", _One(P.Abs()), (special,), np.abs(special), 0.0),
        ("Floor", _One(P.Floor()), (a / 4,), np.floor(a / 4), 0.0),
        ("IsFinite", _One(P.IsFinite()), (special,), np.isfinite(special), 0.0),
        ("Select", _One(P.Select()), (a > b, special, b), np.where(a > b, special, b), 0.0),
        ("Select with a number", _One(P.Select()), (a > b, special, np.float32(0)), np.where(a > b, special, 0), 0.0),
        ("LogicalAnd", _One(P.LogicalAnd()), (a > 0, b > 0), (a > 0) & (b > 0), 0.0),
        ("ZerosLike", _One(P.ZerosLike()), (special,), np.zeros_like(a), 0.0),
        ("OnesLike", _One(P.OnesLike()), (special,), np.ones_like(a), 0.0),
    ]


def _reductions(a: np.ndarray) -> list[_Row]:
    return [
        ("ReduceMax", _One(P.ReduceMax()), (a,), a.max(), 0.0),
        ("ReduceMax of rows", _One(P.ReduceMax(keep_dims=True), 1), (a,), a.max(1, keepdims=True), 0.0),
        ("ReduceSum", _One(P.ReduceSum()), (a,), a.sum(), 0.0),
        ("ReduceSum of rows", _One(P.ReduceSum(), 1), (a,), a.sum(1), 0.0),
        ("ReduceMean", _One(P.ReduceMean()), (a,), a.mean(dtype=np.float64), 1e-5),
        (
            "Argmax",
            _One(P.Argmax(output_type=ms.int32)),
            (a[0] + np.arange(40) / 64,),
            np.argmax(a[0] + np.arange(40) / 64),
            0.0,
        ),
    ]


def _of_shapes(a: np.ndarray, b: np.ndarray) -> list[_Row]:
    rows = np.array([4, 0, 4], np.int32)
    return [
        ("Gather", _One(P.Gather(), 0), (a, rows), a[rows], 0.0),
        ("Transpose", _One(P.Transpose(), (1, 0)), (a,), a.T, 0.0),
        ("Reshape", _One(P.Reshape(), (40, 6)), (a,), a.reshape(40, 6), 0.0),
        ("ExpandDims", _One(P.ExpandDims(), 0), (a,), a[None], 0.0),
        ("Pad", _One(P.Pad(((0, 0), (0, 3)))), (a,), np.pad(a, ((0, 0), (0, 3))), 0.0),
        ("Concat", _OfOne(P.Concat()), (a, b), np.concatenate((a, b)), 0.0),
        ("Stack", _OfOne(P.Stack(1)), (a, b), np.stack((a, b), 1), 0.0),
        ("Stack of numbers", _OfOne(P.Stack()), (a[0, 0], b[0, 0]), np.stack((a[0, 0], b[0, 0])), 0.0),
    ]


def _products() -> list[_Row]:
    draw = np.random.default_rng(3)
    x, w = (draw.integers(-4, 4, shape, endpoint=True).astype(np.float32) for shape in ((3, 7, 64), (3, 64, 33)))
    return [
        ("MatMul", _One(P.MatMul()), (x[0], w[0]), x[0] @ w[0], 0.0),
        ("MatMul transposed", _One(P.MatMul(transpose_b=True)), (x[0], np.ascontiguousarray(w[0].T)), x[0] @ w[0], 0.0),
        ("BatchMatMul", _One(P.BatchMatMul()), (x, w), x @ w, 0.0),
    ]


def _together(rows: list[_Row]) -> list[np.ndarray] | None:
    """What each of `rows` gives, by one graph; None where that can't be had, and each must be made alone."""
    inputs = [Tensor(np.array(each)) for row in rows for each in row[2]]
    try:
        return [read(each) for each in _All([row[1] for row in rows], [len(row[2]) for row in rows])(*inputs)]
    except Exception:
        return None


def _compare(
    name: str, cell: nn.Cell, inputs: tuple[np.ndarray, ...], found: np.ndarray | None, truth: Any, relative: float
) -> None:
    if found is None:
        found = read(cell(*(Tensor(np.array(each)) for each in inputs)))
    expect_near(name, found, truth, relative)


def _write(name: str, op: Any, given: tuple[np.ndarray, ...], expected: list[float]) -> None:
    cell = _Writing(op, np.arange(4, dtype=np.float32))
    cell(*map(Tensor, given)).asnumpy()
    expect_bits(name, [cell.kept.asnumpy()], [np.array(expected, np.float32)])

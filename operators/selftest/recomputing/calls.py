"""Calls whose results are computed a second way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.recompute.convolution import checked_convolution
from asd.operators.recompute.lookup import checked_lookup
from asd.operators.recompute.softmax import checked_softmax
from asd.operators.selftest.cells import Differentiated, FirstOutput, Struck
from asd.operators.selftest.outcome import Report, expect, expect_bits, try_bare
from asd.operators.selftest.values import DTYPES, read, rounded, tensor
from asd.operators.table.slots import table

__all__ = ["test_calls"]


class _Kind(NamedTuple):
    """An operator that has a check, what it is given, and what comes out of it."""

    check: Callable[[Any, str], Any]
    operator: Callable[[], Any]
    inputs: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    constants: tuple[Any, ...] = ()


def _kinds() -> dict[str, _Kind]:
    random = np.random.default_rng(11)
    rows = random.integers(0, 13, 16).astype(np.int32)
    return {
        "softmax of attention": _Kind(checked_softmax, P.Softmax, (random.normal(size=(4, 7, 24)),), (4, 7, 24)),
        "convolution": _Kind(
            checked_convolution, lambda: P.Conv2D(4, 3, pad_mode="same"),
            (random.normal(size=(2, 3, 8, 8)), random.normal(size=(4, 3, 3, 3))), (2, 4, 8, 8),
        ),
        "embedding": _Kind(checked_lookup, P.Gather, (random.normal(size=(13, 32)), rows), (16, 32), (0,)),
    }  # fmt: skip


def test_calls(report: Report) -> None:
    """Each kind of call."""
    for name, kind in _kinds().items():
        report.check("results computed a second way", name, _call, kind, DTYPES[0], dtype=DTYPES[0])


def _given(kind: _Kind, dtype: str) -> list[np.ndarray]:
    return [each if each.dtype == np.int32 else rounded(each, dtype) for each in kind.inputs]


def _run(op: Any, kind: _Kind, dtype: str, constants: tuple[Any, ...] = ()) -> list[np.ndarray]:
    """Output and gradients of an operator, whose check is due."""
    inputs = [Tensor(each) if each.dtype == np.int32 else tensor(each, dtype) for each in _given(kind, dtype)]
    sens = tensor(rounded(np.random.default_rng(9).integers(-2, 2, kind.shape, endpoint=True), dtype), dtype)
    output, gradients = Differentiated(FirstOutput(op, *constants))(sens, *inputs)
    return [read(each) for each in (output, *gradients) if each.dtype != ms.int32]


def _made(kind: _Kind, dtype: str, *, struck: bool = False) -> Any:
    table().schedule_checksums(1, 0, True)
    made = kind.check(kind.operator(), "selftest.call")
    if struck:
        made.call.op = Struck(made.call.op, kind.shape, dtype)
    return made


def _call(kind: _Kind, dtype: str) -> None:
    """The bits of the bare operator and no alarm; an alarm where an element is wrong."""
    right = try_bare(f"this and its gradient in {dtype}", _run, kind.operator(), kind, dtype, kind.constants)
    checked = _made(kind, dtype)
    expect_bits("with its check and without", _run(checked, kind, dtype), right)
    scores = _scores(checked)
    expect(len(scores) == len(checked.sites), f"of {len(checked.sites)} results {len(scores)} were checked")
    for name, score in scores.items():
        expect(score <= 1, f"{name} is right and has the score {score:.6g}; at most 1 is right")
    wrong = _made(kind, dtype, struck=True)
    _run(wrong, kind, dtype)
    score = _scores(wrong).get(wrong.sites[0].name, 0.0)
    expect(score > 1, f"an element is wrong by 16, and the score is {score:.6g}, not above 1")


def _scores(checked: Any) -> dict[str, float]:
    return {each.checkpoint: each.max_abs for each in table().read(checked.sites)}

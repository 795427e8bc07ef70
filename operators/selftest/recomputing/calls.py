"""Calls whose results are computed a second way; the trace of a wrong one; and outputs that recomputation repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.measure.look import make_look
from asd.operators.recompute.convolution import checked_convolution
from asd.operators.recompute.lookup import checked_lookup
from asd.operators.recompute.softmax import checked_softmax
from asd.operators.selftest.cells import Differentiated, FirstOutput, Struck
from asd.operators.selftest.outcome import Report, Wrong, expect, expect_bits, try_bare
from asd.operators.selftest.values import DTYPES, read, rounded, tensor
from asd.operators.table.slots import table, use_backend
from asd.rules.readings.reading import OUTPUT, RECOMPUTED

__all__ = ["test_calls"]

_ROOM = 1 << 20
_LEARNED = 6
"""Steps in which all outputs come twice, before one that does not is wrong."""


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


def test_calls(report: Report, backends: tuple[str, ...]) -> None:
    """Each kind of call by each back end; what only the kernel does, by it."""
    kinds = _kinds()
    for backend in backends:
        for name, kind in kinds.items():
            for dtype in DTYPES[:2] if backend == "kernel" else DTYPES[:1]:
                given = {"dtype": dtype, "backend": backend}
                report.check("results computed a second way", name, _call, backend, kind, dtype, **given)
    if "kernel" in backends:
        for name, kind in kinds.items():
            report.check("trace of a wrong call", name, _trace, kind, dtype=DTYPES[0], backend="kernel")
        for dtype in DTYPES:
            report.check("recomputed outputs", "the same bits", _twins, dtype, dtype=dtype, backend="kernel")


def _given(kind: _Kind, dtype: str) -> list[np.ndarray]:
    return [each if each.dtype == np.int32 else rounded(each, dtype) for each in kind.inputs]


def _run(op: Any, kind: _Kind, dtype: str, constants: tuple[Any, ...] = ()) -> list[np.ndarray]:
    """Output and gradients of an operator, whose check is due."""
    inputs = [Tensor(each) if each.dtype == np.int32 else tensor(each, dtype) for each in _given(kind, dtype)]
    sens = tensor(rounded(np.random.default_rng(9).integers(-2, 2, kind.shape, endpoint=True), dtype), dtype)
    output, gradients = Differentiated(FirstOutput(op, *constants))(sens, *inputs)
    return [read(each) for each in (output, *gradients) if each.dtype != ms.int32]


def _made(kind: _Kind, dtype: str, *, struck: bool = False) -> Any:
    table().schedule_checksums(1, 0, True, 0)
    made = kind.check(kind.operator(), "selftest.call")
    if struck:
        made.call.op = Struck(made.call.op, kind.shape, dtype)
    return made


def _call(backend: str, kind: _Kind, dtype: str) -> None:
    """The bits of the bare operator and no alarm; an alarm where an element is wrong."""
    use_backend(backend)
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


def _trace(kind: _Kind) -> None:
    """What the check of the wrong call was given is kept, bit for bit, with the wrong result."""
    use_backend("kernel")
    wrong = _made(kind, DTYPES[0], struck=True)
    table().keep(_ROOM)
    try:
        result = _run(wrong, kind, DTYPES[0])[0]
        found = [each.operator for each in table().captures(wrong.sites) if each.operator is not None]
        _scores(wrong)
    finally:
        table().keep(0)
    if len(found) != 1:
        raise Wrong(f"of one wrong call {len(found)} were kept")
    kept = found[0].tensors
    operands = _given(kind, DTYPES[0])
    arrays = [np.frombuffer(each.data, each.dtype).reshape(each.shape) for each in kept[:3]]
    expect_bits("operands and result that are kept", arrays, [*(operands * 2)[:2], result])


class _Twice(nn.Cell):
    def __init__(self, look: Any) -> None:
        super().__init__()
        self.look = look

    def construct(self, once, again):
        return self.look(once), self.look(again)


def _judged(dtype: str) -> Iterator[float]:
    """Scores of steps in which an output comes twice; in the last one the second has another bit."""
    site = table().new_site("selftest.recomputed", OUTPUT)
    table().schedule_checksums(1, 0, True, 0)
    net = _Twice(make_look(site))
    once = rounded(np.random.default_rng(3).normal(size=(5, 31)), dtype)
    flipped = once.copy()
    flipped.flat[-1] *= -1
    for again in (*[once] * (_LEARNED + 1), flipped):
        for each in net(tensor(once, dtype), tensor(again, dtype)):
            read(each)
        found = [reading.max_abs for reading in table().read([site]) if reading.kind == RECOMPUTED]
        yield found[0] if found else -1.0


def _twins(dtype: str) -> None:
    use_backend("kernel")
    *_, right, wrong = _judged(dtype)
    expect(right >= 0, f"an output that came twice in {_LEARNED} steps is still not compared")
    expect(right <= 1, f"two equal outputs have the score {right:.6g}; at most 1 is right")
    expect(wrong > 1, f"one of two outputs has another bit, and the score is {wrong:.6g}, not above 1")

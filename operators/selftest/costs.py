"""What each check takes on this device, beside the same without it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.checks.norm import NormASD
from asd.operators.checks.ready_made import LayerNormASD
from asd.operators.gate.guard import guard
from asd.operators.measure.tap import make_tap
from asd.operators.ranks.weights import hash_of
from asd.operators.recompute.product import CheckedProduct
from asd.operators.selftest.cells import Differentiated, FirstOutput
from asd.operators.selftest.outcome import Report
from asd.operators.table.slots import renew, table

__all__ = ["measure_costs"]

_SIZE = 512
"""Rows and columns of every tensor: a quarter of a million elements, a megabyte of float32."""
_WARM, _TIMES, _LONGEST = 2, 15, 1.0  # the last in seconds


def measure_costs(report: Report) -> None:
    """Microseconds per call, of the quickest of a few; `max(0, with - without)` where there is a without."""
    x = Tensor(np.random.default_rng(1).normal(size=(_SIZE, _SIZE)).astype(np.float32))
    weights = Tensor(np.ones(_SIZE, np.float32)), Tensor(np.zeros(_SIZE, np.float32))
    array = x.asnumpy()
    renew().schedule_checksums(1, 0, True)
    for name, ours, bare, inputs in (
        ("tap on a gradient", make_tap(table().new_site("selftest.cost")), _same, (x,)),
        ("LayerNormASD", LayerNormASD(-1, -1, 1e-5), P.LayerNorm(-1, -1, 1e-5), (x, *weights)),
        ("product with checksums", CheckedProduct(P.MatMul(), "selftest.cost"), P.MatMul(), (x, x)),
        ("norm computed again", _norm(), P.LayerNorm(-1, -1, 1e-5), (x, *weights)),
    ):
        report.cost(name, _difference(_passes(ours, inputs), _passes(bare, inputs)))
    report.cost("gate at an update", _difference(_updates(guarded=True), _updates(guarded=False)))
    report.cost("reading the table", lambda: _time(lambda: table().read(table().sites())))
    report.cost("hash of a weight", lambda: _time(lambda: hash_of(array)))


def _norm() -> NormASD:
    return NormASD(P.LayerNorm(-1, -1, 1e-5), "selftest.cost", check=True)


def _same(x):
    return x * 1.0


def _passes(op: Any, inputs: tuple[Tensor, ...]) -> Callable[[], None]:
    """Forward and backward through `op`."""
    net = Differentiated(FirstOutput(op))

    def run() -> None:
        output, gradients = net(inputs[0], *inputs)
        for each in (output, *gradients):
            each.asnumpy()

    return run


def _updates(*, guarded: bool) -> Callable[[], None]:
    weight = Parameter(Tensor(np.zeros((_SIZE, _SIZE), np.float32)), name="selftest.cost")
    optimizer = nn.Momentum([weight], 0.1, 0.9)
    if guarded:
        guard(optimizer, gradients=True)
    gradient = Tensor(np.full((_SIZE, _SIZE), 1e-3, np.float32))

    def run() -> None:
        optimizer((gradient,))
        weight.asnumpy()

    return run


def _difference(ours: Callable[[], None], bare: Callable[[], None]) -> Callable[[], float]:
    return lambda: max(0.0, _time(ours) - _time(bare))


def _time(run: Callable[[], object]) -> float:
    """The quickest of a few: what else the machine does only makes it longer."""
    for _ in range(_WARM):
        run()
    times: list[float] = []
    while len(times) < _TIMES and sum(times) < _LONGEST:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return 1e6 * min(times)

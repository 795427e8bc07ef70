"""Tests the gate: a good update is applied bit for bit, an update that breaks a limit not at all."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, nn

from asd.operators.gate.guard import guard
from asd.operators.gate.slots import renew, table
from asd.operators.selftest.outcome import Report, expect, expect_bits, expect_near, try_bare
from asd.operators.selftest.values import DTYPES, expect_alike, norm_of, number_of_bits, read, rounded, tensor

_SHAPE = (8, 40)
_LIMIT, _LEAST = 100.0, 0.1


def test_refusing(report: Report) -> None:
    """Tests the gate with weights of each type."""
    for dtype in DTYPES:
        report.check("gate", "refuses and applies", _story, dtype, dtype=dtype)


class _Training:
    """One weight and its optimizer, called with given gradients."""

    def __init__(self, dtype: str) -> None:
        start = rounded(np.random.default_rng(3).normal(size=_SHAPE), dtype)
        self.weight = Parameter(tensor(start, dtype), name="selftest.weight")
        self.optimizer = nn.Momentum([self.weight], 0.125, 0.5)

    def update(self, gradient: np.ndarray, dtype: str) -> list[np.ndarray]:
        self.optimizer((tensor(gradient, dtype),))
        return self.state()

    def state(self) -> list[np.ndarray]:
        floats = (ms.float32, ms.float16, ms.bfloat16)
        return [read(each) for each in self.optimizer.get_parameters() if each.dtype in floats]


def _gradients(dtype: str) -> dict[str, np.ndarray]:
    """Returns gradients that must be refused, by their fault."""
    usual = _usual(dtype, 5)
    wrong = {"one element far too large": _with(usual, 101.0), "all too large": _too_large(usual)}
    for value in (math.nan, math.inf, -math.inf):
        wrong[f"an element that is {value}"] = _with(usual, value)
    wrong["all far too small"] = usual * 1e-4
    wrong["all zero"] = usual * 0
    return {name: rounded(array, dtype) for name, array in wrong.items()}


def _usual(dtype: str, seed: int) -> np.ndarray:
    return rounded(np.random.default_rng(seed).normal(size=_SHAPE), dtype)


def _too_large(usual: np.ndarray) -> np.ndarray:
    return usual * 20


def _with(usual: np.ndarray, value: float) -> np.ndarray:
    changed = usual.copy()
    changed[3, 7] = value
    return changed


def _story(dtype: str) -> None:
    renew()
    theirs = _Training(dtype)
    try_bare(f"an update of {dtype} weights", theirs.update, _usual(dtype, 1), dtype)
    ours, slots = _Training(dtype), table()
    guard(ours.optimizer, gradients=True, lower=True)
    sites = ours.optimizer.asd_gate.sites
    _apply_both(ours, _Training(dtype), dtype, 1, "before it is armed")
    _measured(slots.read(sites), _usual(dtype, 1), dtype)
    slots.set_limits([(site, _LIMIT) for site in sites], 1.0, [(site, _LEAST) for site in sites])
    slots.arm(True)
    expect_alike("weights after the first update", ours.state(), theirs.state())
    _apply_both(ours, theirs, dtype, 2, "when it is armed")
    slots.read(sites)
    for name, gradient in _gradients(dtype).items():
        before, refused = ours.state(), slots.refused()
        after = ours.update(gradient, dtype)
        slots.read(sites)
        count = slots.refused() - refused
        expect(count == 1, f"a gradient with {name} was refused {count} times, not once")
        expect_bits(f"weights and moments after a refused gradient with {name}", after, before)
    _apply_both(ours, theirs, dtype, 3, "after refusals")
    slots.read(sites)
    slots.arm(False)
    refused = slots.refused()
    before = ours.state()
    after = ours.update(rounded(_too_large(_usual(dtype, 5)), dtype), dtype)
    slots.read(sites)
    expect(slots.refused() == refused, "a gate that is not armed refused an update")
    changed = any(a.tobytes() != b.tobytes() for a, b in zip(after, before, strict=True))
    expect(changed, "a gate that is not armed applied nothing")


def _apply_both(ours: _Training, theirs: _Training, dtype: str, seed: int, when: str) -> None:
    gradient, refused = _usual(dtype, seed), table().refused()
    found, truth = ours.update(gradient, dtype), theirs.update(gradient, dtype)
    expect(table().refused() == refused, f"a good update was refused {when}")
    expect_alike(f"weights and moments with the gate and without, {when}", found, truth)


def _measured(readings: list, gradient: np.ndarray, dtype: str) -> None:
    expect(len(readings) == 1, f"{len(readings)} gradients were measured, not 1")
    near = 2.0 ** -min(number_of_bits(dtype), 13)
    expect_near("the norm of the gradient of a weight", readings[0].value, norm_of(gradient), near)

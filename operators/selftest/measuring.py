"""Tests measurements: statistics, taps, check operators and hashes give NumPy's numbers and change no bit."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from asd.operators.gate.slots import renew, table
from asd.operators.gate.statistics import Statistics, statistics
from asd.operators.gate.tap import make_observer, make_tap
from asd.operators.ranks.weights import hashes_of, odd_numbers
from asd.operators.selftest.outcome import Absent, Report, Wrong, expect, expect_bits, expect_near, try_bare
from asd.operators.selftest.values import (
    DTYPES,
    SMALLEST,
    Differentiated,
    FirstOutput,
    cases,
    expect_alike,
    norm_of,
    number_of_bits,
    read,
    rounded,
    tensor,
)
from asd.operators.sensors.ready_made import GatherASD, LayerNormASD, RmsNormASD
from asd.rules.reading import WEIGHT_GRADIENT, Reading

_OF_SUMS = 1e-4  # relative error of a float32 sum of some thousand positive numbers


def test_measuring(report: Report) -> None:
    """Tests all measurements in each type."""
    renew()
    for dtype in DTYPES:
        report.check("statistics", "of a tensor", _statistics, dtype, dtype=dtype)
        for name, test in (
            ("tap", _tap),
            ("gradients together", _together),
            ("LayerNormASD", _layer_norm),
            ("RmsNormASD", _rms_norm),
            ("GatherASD", _gather),
        ):
            report.check("check operators" if name.endswith("ASD") else "taps", name, test, dtype, dtype=dtype)


class _Passing(nn.Cell):
    def __init__(self, through: Any) -> None:
        super().__init__()
        self.through = through

    def construct(self, x):
        return self.through(x)


def _statistics(dtype: str) -> None:
    """Tests the norm and the largest magnitude, in a graph and in Python."""
    in_graph, largest = Statistics(), Statistics()
    largest.largest = True
    for name, array in cases(dtype).items():
        x = tensor(array, dtype)
        for found in (in_graph((x,)), statistics([x])):
            _compare(f"the norm of {name}", float(found.asnumpy()[0]), norm_of(array))
        truth = float(np.abs(array.astype(np.float64)).max())
        for found in (largest((x,)), *(statistics([x], largest=True, alike=each) for each in (False, True))):
            got = float(found.asnumpy()[0])
            expect(np.isfinite(got) == np.isfinite(truth), f"the largest of {name} is {got:.9g}, NumPy's {truth:.9g}")
            if np.isfinite(truth):
                expect_near(f"the largest of {name}", got, truth, 0.0, SMALLEST)


def _compare(what: str, found: float, truth: float) -> None:
    if np.isfinite(truth):
        expect_near(what, found, truth, _OF_SUMS, SMALLEST)
    else:
        expect(not np.isfinite(found), f"{what} is {found:.9g}, although an element is not finite")


def _tap(dtype: str) -> None:
    site = table().new_site("selftest.tap")
    net = Differentiated(_Passing(make_tap(site)))
    some = cases(dtype)["usual"]
    for name, array in cases(dtype).items():
        output, (gradient,) = net(tensor(array, dtype), tensor(some, dtype))
        passed = read(output), read(gradient)
        expect_bits(f"what passes a tap, with a gradient of {name}", passed, (some, array))
        _seen(name, _reading(site), array)


class _Reporting(nn.Cell):
    def __init__(self, report: Any) -> None:
        super().__init__()
        self.report = report

    def construct(self, *tensors):
        return self.report(tensors)


def _together(dtype: str) -> None:
    """Reads the gradients of all parameters in one call, as the gate does."""
    arrays = cases(dtype)
    sites = [table().new_site(f"selftest.{name}", WEIGHT_GRADIENT) for name in arrays]
    _Reporting(make_observer(sites))(*(tensor(array, dtype) for array in arrays.values())).asnumpy()
    for (name, array), site in zip(arrays.items(), sites, strict=True):
        _seen(name, _reading(site), array)


def _reading(site: Any) -> Reading:
    found = table().read([site])
    if not found:
        raise Wrong(f"{site.name} saw nothing")
    return found[0]


def _seen(name: str, reading: Reading, array: np.ndarray) -> None:
    _compare(f"the norm of {name}", reading.value, norm_of(array))


def _draw(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return rounded(np.random.default_rng(seed).normal(size=shape), dtype)


def _layer_norm(dtype: str) -> None:
    x, gamma, beta = _draw((16, 32), dtype, 1), _draw((32,), dtype, 2), _draw((32,), dtype, 3)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    normal = centred * rstd

    def gradients(sens: np.ndarray) -> list[np.ndarray]:
        inner = sens * gamma
        of_x = inner - inner.mean(-1, keepdims=True) - normal * (inner * normal).mean(-1, keepdims=True)
        return [rstd * of_x, (sens * normal).sum(0), sens.sum(0)]

    norm = LayerNormASD(-1, -1, 1e-5)
    _checked("LayerNorm", norm, (x, gamma, beta), normal * gamma + beta, gradients, dtype)


def _rms_norm(dtype: str) -> None:
    x, gamma = _draw((16, 32), dtype, 1), _draw((32,), dtype, 2)
    wide = x.astype(np.float64)
    rstd = 1 / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6)
    normal = wide * rstd

    def gradients(sens: np.ndarray) -> list[np.ndarray]:
        inner = sens * gamma
        return [rstd * (inner - normal * (inner * normal).mean(-1, keepdims=True)), (sens * normal).sum(0)]

    _checked("RmsNorm", RmsNormASD(1e-6), (x, gamma), normal * gamma, gradients, dtype)


def _gather(dtype: str) -> None:
    weight, rows = _draw((13, 32), dtype, 1), np.random.default_rng(4).integers(0, 13, 16).astype(np.int32)

    def gradients(sens: np.ndarray) -> list[np.ndarray]:
        of_weight = np.zeros(weight.shape)
        np.add.at(of_weight, rows, sens)
        return [of_weight]

    _checked("Gather", GatherASD(), (weight, rows), weight.astype(np.float64)[rows], gradients, dtype, 0)


def _checked(
    what: str,
    ours: Any,
    inputs: tuple[np.ndarray, ...],
    truth: np.ndarray,
    gradients: Callable[[np.ndarray], list[np.ndarray]],
    dtype: str,
    *more: Any,
) -> None:
    """Expects the bare operator's bits, results near NumPy's, and the norm of its gradient in the table."""
    if not ours.enable_check:
        raise Wrong(f"{what} is not checked, though NPU_ASD_ENABLE is 1")
    given = [Tensor(each) if each.dtype == np.int32 else tensor(each, dtype) for each in inputs]
    sent = np.random.default_rng(9).integers(-4, 4, truth.shape)
    sens = tensor(rounded(sent, dtype), dtype)

    def run(op: Any) -> list[np.ndarray]:
        output, gradients = Differentiated(FirstOutput(op, *more))(sens, *given)
        floats = (ms.float32, ms.float16, ms.bfloat16)
        return [read(output), *(read(each) for each in gradients if each.dtype in floats)]

    bare = try_bare(f"{what} and its gradient in {dtype}", run, ours.op)
    table().read(table().sites())
    found = run(ours)
    step = 2.0 ** -min(number_of_bits(dtype), 17)
    expect_near(f"{what}'s output", found[0], truth, 4 * step, 8 * step)
    for number, (gradient, right) in enumerate(zip(found[1:], gradients(sent.astype(np.float64)), strict=True)):
        expect_near(f"gradient {number} of {what}", gradient, right, 16 * step, 64 * step)
    expect_alike(f"{what} with its check and without", found, bare)
    seen = [reading for reading in table().read(table().sites()) if what in reading.checkpoint]
    if not seen:
        raise Wrong(f"the check of {what} saw nothing")
    _seen(f"the gradient of {what}", seen[0], found[1])


def test_hashes(report: Report) -> None:
    """Tests known answers, flipped bits, and weights of each type."""
    report.check("hashes", "known answers", _known)
    report.check("hashes", "a flipped bit", _flipped)
    for dtype in DTYPES:
        report.check("hashes", "of a weight on the device", _of_weight, dtype, dtype=dtype)


def _known() -> None:
    words = (np.arange(250, dtype=np.uint32) * np.uint32(20_000_003)).view(np.int32)
    (found,), pairs = hashes_of([Tensor(words)]), zip(words.tolist(), odd_numbers().tolist(), strict=False)
    truth = sum((word + (word >> 16)) * odd for word, odd in pairs) % 2**32
    expect(found == truth, f"the hash of 250 known words is {found:#x}, by whole numbers it is {truth:#x}")


def _flipped() -> None:
    data = np.random.default_rng(1).integers(-(2**31), 2**31, 251).astype(np.int32)
    bits = [*range(64), *range(64, 32 * data.size, 61)]
    struck = [data.copy() for _ in bits]
    for each, bit in zip(struck, bits, strict=True):
        each.view(np.uint8)[bit // 8] ^= 1 << bit % 8
    right, copied, *found = hashes_of([Tensor(each) for each in (data, data.copy(), *struck)])
    expect(right == copied, "a copy has another hash")
    for bit, other in zip(bits, found, strict=True):
        expect(other != right, f"bit {bit} of {32 * data.size} flips unseen")


def _of_weight(dtype: str) -> None:
    for name, array in cases(dtype).items():
        weight = tensor(array, dtype)
        if read(weight).tobytes() != array.tobytes():
            if name in ("denormal", "tiny"):
                continue  # made by a conversion on the device, which takes it for zero
            raise Absent(f"the device does not keep the bits of {name} in {dtype}")
        (found,), flat = hashes_of([weight]), array.reshape(-1)
        if dtype == "float16":
            words = flat.view(np.int16).astype(np.int32)
        else:  # NumPy has bfloat16 as float32, whose upper half it is
            words = flat.view(np.int32) >> 16
            words = words if dtype == "bfloat16" else words + flat.view(np.int32)
        truth = int((words.view(np.uint32) * odd_numbers()[: words.size]).sum(dtype=np.uint32))
        expect(found == truth, f"{name}: the hash of a weight is {found:#x}, of the same bits in NumPy {truth:#x}")

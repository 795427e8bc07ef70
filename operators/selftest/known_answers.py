"""Repeats work whose answers are known, and compares what came out with these and with the first time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from asd.errors import ConfigError, UnsupportedError
from asd.injection import Fault
from asd.operators.drill.inject import numpy_operator
from asd.operators.selftest.workloads import WORKLOADS, StressWork, Task

__all__ = ["VENDOR_CODES", "StressFinding", "StressOutcome", "stress", "use_device", "vendor_test"]

VENDOR_CODES = {0: "found nothing", 1: "could not be started", 2: "found a hardware failure"}
"""What `mindspore.tools.stress_detect` returns, as its document says."""

_TASKS = 2  # sets of numbers of each workload
_LEAST = 2  # repetitions of each, however short the time is


class StressFinding(NamedTuple):
    """What was computed wrongly first.

    Attributes:
        workload: Name of the work.
        output: Which of its outputs.
        seed: Of the numbers.
        repetition: How often these numbers had been computed then, from 1.
        at: Index of the first wrong element.
        expected: Its right value.
        expected_bits: The same as hex digits.
        got: Its value.
        got_bits: The same as hex digits.
        wrong: How many elements are.
        elements: Of how many.
        against: `the known answer`, or `the first repetition`.
    """

    workload: str
    output: str
    seed: int
    repetition: int
    at: tuple[int, ...]
    expected: float
    expected_bits: str
    got: float
    got_bits: str
    wrong: int
    elements: int
    against: str

    def sentence(self) -> str:
        """All of it, without a full stop."""
        return (
            f"{self.workload}, output {self.output}, seed {self.seed}, repetition {self.repetition}, element "
            f"{list(self.at)}: expected {self.expected!r} ({self.expected_bits}), got {self.got!r} "
            f"({self.got_bits}); {self.wrong} of {self.elements} elements differ from {self.against}"
        )


@dataclass
class StressOutcome:
    """How a test ended.

    Attributes:
        repetitions: How often each workload was computed.
        seconds: How long it took, without finding the answers and without `vendor_test`.
        finding: What was wrong; None when nothing was.
        vendor_code: Of MindSpore's own test, one of `VENDOR_CODES`; None where there is none.
    """

    repetitions: dict[str, int] = field(default_factory=lambda: dict.fromkeys((each.name for each in WORKLOADS), 0))
    seconds: float = 0.0
    finding: StressFinding | None = None
    vendor_code: int | None = None


def use_device(device: str, mode: str) -> str:
    """Sets the device and the mode of MindSpore; to be called before anything is computed.

    Args:
        device: Such as `Ascend:3`; without a number it is the first.
        mode: `graph` or `pynative`.

    Returns:
        The device with its number.

    Raises:
        ConfigError: There is no such device here.
    """
    match = re.fullmatch(r"(CPU|GPU|Ascend)(?::(\d{1,4}))?", device, re.ASCII)
    if match is None:
        raise ConfigError("--device", device, "it must be such as CPU:0 or Ascend:3")
    target, number = match[1], int(match[2] or 0)
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    try:
        # MindSpore knows one CPU; another number is the name of the same one in the job's events. Once anything was
        # computed no device can be set, not even the same one.
        if target != "CPU" or ms.get_context("device_target") != "CPU":
            ms.set_device(target, *(() if target == "CPU" else (number,)))
    except (RuntimeError, ValueError) as error:
        raise ConfigError("--device", device, f"MindSpore has none here ({_first_sentence(error)})") from error
    if target != "CPU":
        ms.set_deterministic(True)
    return f"{target}:{number}"


def stress(
    seconds: float,
    seed: int = 0,
    fault: Fault | None = None,
    tell: Callable[[float, int], None] | None = None,
) -> StressOutcome:
    """Tests the device that is set until the time is up or something is wrong.

    Args:
        seconds: How long; everything is computed at least twice.
        seed: Of the numbers.
        fault: Spoils the first output of a workload, to see how that is found. Its step counts the workload's
            repetitions. On the CPU only.
        tell: Is told the seconds so far and the repetitions so far.

    Raises:
        ConfigError: The fault names no workload, or not an output.
        UnsupportedError: The device can't do the work, or MindSpore's own test does not run.
    """
    outcome = StressOutcome()
    try:
        jobs = [_Job(workload, seed + number, fault) for workload in _spoiled(fault) for number in range(_TASKS)]
        _repeat(jobs, seconds, outcome, tell or (lambda _seconds, _count: None))
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, (ConfigError, UnsupportedError)):
            raise
        raise UnsupportedError(f"the device can't do the work: {_first_sentence(error)}.") from error
    if outcome.finding is None and ms.get_context("device_target") == "Ascend":
        outcome.vendor_code = vendor_test()
    return outcome


def vendor_test() -> int:
    """Tests the Ascend device that is set by MindSpore's own test, for a time that MindSpore chooses.

    Returns:
        One of `VENDOR_CODES`.

    Raises:
        UnsupportedError: MindSpore does not do it here.
    """
    try:
        from mindspore.tools import stress_detect
    except ImportError:  # before 2.7.1
        from mindspore.utils import stress_detect
    try:
        return int(stress_detect("aic"))
    except RuntimeError as error:
        raise UnsupportedError(f"MindSpore's own stress test does not run: {_first_sentence(error)}.") from error


def _repeat(jobs: list[_Job], seconds: float, outcome: StressOutcome, tell: Callable[[float, int], None]) -> None:
    began, repetition = time.monotonic(), 0
    while repetition < _LEAST or outcome.seconds < seconds:
        repetition += 1
        for job in jobs:
            count = outcome.repetitions[job.name] = outcome.repetitions.get(job.name, 0) + 1
            outcome.finding = job.repeat(repetition, count)
            outcome.seconds = time.monotonic() - began
            tell(min(outcome.seconds, seconds), sum(outcome.repetitions.values()))
            if outcome.finding is not None:
                return
            if repetition > _LEAST and outcome.seconds >= seconds:
                return


class _Job:
    """One workload with one set of numbers."""

    def __init__(self, workload: StressWork, seed: int, fault: Fault | None) -> None:
        self.workload, self.name = workload, workload.name
        self._seed = seed
        self._task: Task = workload.task(seed)
        self._inputs = tuple(Tensor(each) for each in self._task.inputs)
        self._spoil = _Spoil(fault) if fault is not None and _is_struck(workload, fault) else None
        net = workload.build()
        self._net = net if self._spoil is None else _Spoiled(net, self._spoil)
        self._first: list[np.ndarray] = []

    def repeat(self, repetition: int, count: int) -> StressFinding | None:
        """Computes once more; `count` is the repetition of the workload with any numbers."""
        if self._spoil is not None:
            self._spoil.step = count
        outputs = [each.asnumpy() for each in self._net(*self._inputs)]
        for name, output, answer, bound in zip(
            self.workload.outputs, outputs, self._task.answers, self._task.bounds, strict=True
        ):
            with np.errstate(invalid="ignore", over="ignore"):
                wrong = ~(np.abs(output - answer) <= bound)  # nan is wrong
            if wrong.any():
                return self._finding(name, repetition, output, answer.astype(output.dtype), wrong, "the known answer")
        if not self._first:
            self._first = outputs
        for name, output, first in zip(self.workload.outputs, outputs, self._first, strict=True):
            wrong = _bits(output) != _bits(first)
            if wrong.any():
                return self._finding(name, repetition, output, first, wrong, "the first repetition")
        return None

    def _finding(
        self, name: str, repetition: int, output: np.ndarray, right: np.ndarray, wrong: np.ndarray, against: str
    ) -> StressFinding:
        index = tuple(int(each) for each in np.argwhere(wrong)[0])
        digits = 2 * output.dtype.itemsize
        expected, got = (f"0x{int(_bits(each)[index]):0{digits}X}" for each in (right, output))
        return StressFinding(
            self.name,
            name,
            self._seed,
            repetition,
            index,
            float(right[index]),
            expected,
            float(output[index]),
            got,
            int(wrong.sum()),
            output.size,
            against,
        )


class _Spoil:
    """Applies a fault when it is its turn."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.step = 0

    def __call__(self, array: np.ndarray) -> np.ndarray:
        fault = self._fault.of_call(self.step) if self._fault.is_active(self.step) else None
        return fault.apply(array, self.step) if fault is not None else array


class _Spoiled(nn.Cell):
    """A network whose first output is spoiled within the same run."""

    def __init__(self, net: nn.Cell, spoil: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__()
        self.net = net
        self.spoil = numpy_operator(spoil)

    def construct(self, *inputs):
        outputs = self.net(*inputs)
        return self.spoil(outputs[0]), *outputs[1:]


def _spoiled(fault: Fault | None) -> tuple[StressWork, ...]:
    """The workloads, once it is clear that `fault` strikes one."""
    if fault is None:
        return WORKLOADS
    if ms.get_context("device_target") != "CPU":
        raise UnsupportedError(f"faults can be injected on the CPU only, not on {ms.get_context('device_target')}.")
    if fault.target != "output":
        raise ConfigError("fault target", fault.target, "a stress test has outputs only, so valid is output")
    if not any(_is_struck(workload, fault) for workload in WORKLOADS):
        names = ", ".join(workload.name for workload in WORKLOADS)
        raise ConfigError("fault where", fault.where, f"valid is an expression that matches one of {names}")
    return WORKLOADS


def _is_struck(workload: StressWork, fault: Fault) -> bool:
    return next((each for each in WORKLOADS if re.search(fault.where, each.name)), None) is workload


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


def _first_sentence(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__

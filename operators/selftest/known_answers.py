"""Repeats known-answer tests, and compares each result with the answer and with the first result."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor

from asd.config import Config
from asd.diagnosis.selftest import ABSENT, OK, WRONG, Finding
from asd.errors import ConfigError, UnsupportedError
from asd.event import Event
from asd.operators.rerun.pieces import PIECES
from asd.operators.rerun.vendor import STRESS_CODES, stress_test
from asd.operators.rerun.work import Work, bits_of, is_off, operands_of
from asd.operators.selftest.outcome import Report, expect, try_bare
from asd.origin import Origin
from asd.verdict import Level

_TASKS = 2  # sets of numbers of each piece of work
_SHAPE = (512, 512)  # of operands: some 10**8 operations a product
_VENDOR_FOUND = 2  # a code of MindSpore's own test
_AREA = "known answers"
_LEAST = 2  # repetitions of each, however short the time is


class StressFinding(NamedTuple):
    """First wrong result of a stress test.

    Attributes:
        workload: Kind of the work, such as `products`.
        output: Operator of that kind.
        seed: Seed of the numbers.
        repetition: Number of the repetition with these numbers, from 1.
        wrong: Number of wrong elements.
        words: First wrong element, its right value and its own with their bits, and the reference they differ from.
    """

    workload: str
    output: str
    seed: int
    repetition: int
    wrong: int
    words: str

    def sentence(self) -> str:
        """Returns the finding as one sentence, without a full stop."""
        return f"{self.workload}, {self.output}, seed {self.seed}, repetition {self.repetition}, {self.words}"


@dataclass
class StressOutcome:
    """Outcome of a stress test.

    Attributes:
        repetitions: Repetitions of each kind of work.
        absent: Operators that this device lacks, and why.
        seconds: Duration, without computing the answers and without `stress_test`.
        finding: First wrong result; None when all were right.
        vendor_code: Result of MindSpore's own test, one of `STRESS_CODES`; None where it did not run.
    """

    repetitions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PIECES, 0))
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    finding: StressFinding | None = None
    vendor_code: int | None = None

    @property
    def failed(self) -> bool:
        """True where anything was computed wrongly."""
        return self.finding is not None or self.vendor_code == _VENDOR_FOUND

    def sentence(self, device: str) -> str:
        """Returns the outcome for people."""
        if self.finding is not None:
            return f"{device} computed wrongly: {self.finding.sentence()}."
        done = ", ".join(f"{count} times {name}" for name, count in self.repetitions.items())
        if self.absent:
            done += f"; left out: {', '.join(self.absent)}"
        if self.vendor_code is not None:
            told = STRESS_CODES.get(self.vendor_code, "returned what is not documented")
            done += f"; MindSpore's own stress test {told} (code {self.vendor_code})"
        return f"{device} made no mistake in {self.seconds:.1f} s: {done}."

    def event(self, config: Config, device: str) -> Event:
        """Returns the event for those who decide about the device; each test is a separate one."""
        finding, now = self.finding, time.time()
        return Event(
            origin=Origin(config.name_of_run(), -1, config.name_of_node(), device),
            step=0,
            checkpoint=f"{finding.workload}.{finding.output}" if finding is not None else "",
            value=float(finding.wrong) if finding is not None else float(self.failed),
            limits=(0.0,),
            level=Level.ERROR if self.failed else Level.NORMAL,
            kind="stress",
            rule="known_answer",
            feature="wrong_elements",
            reason=self.sentence(device),
            refused=False,
            time=now,
            verdict="persistent" if self.failed else "",
            key=f"{now!r} {os.getpid()}",
        )

    def findings(self, mode: str) -> list[Finding]:
        """Returns a result of each kind of work."""
        wrong = self.finding
        found = [
            Finding(_AREA, name, WRONG, mode, detail=wrong.sentence())
            if wrong is not None and wrong.workload == name
            else Finding(_AREA, name, OK, mode, detail=f"{count} times")
            for name, count in self.repetitions.items()
        ]
        found += [Finding(_AREA, name, ABSENT, mode, detail=why) for name, why in self.absent.items()]
        if self.vendor_code is not None:
            state = {0: OK, _VENDOR_FOUND: WRONG}.get(self.vendor_code, ABSENT)
            found.append(Finding(_AREA, "MindSpore's own", state, mode, detail=f"code {self.vendor_code}"))
        return found


def use_device(device: str, mode: str) -> str:
    """Sets the device and the mode of MindSpore; must be called before anything is computed.

    Args:
        device: A name such as `Ascend:3`; without a number it is the first device.
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
        # MindSpore knows one CPU; another number names the same one in the job's events. Once anything was computed no
        # device can be set, not even the same one.
        if target != "CPU" or ms.get_context("device_target") != "CPU":
            ms.set_device(target, *(() if target == "CPU" else (number,)))
    except (RuntimeError, ValueError) as error:
        raise ConfigError("--device", device, f"MindSpore has none here ({_first_sentence(error)})") from error
    if target != "CPU":
        ms.set_deterministic(True)
    return f"{target}:{number}"


def stress(seconds: float, seed: int = 0, tell: Callable[[float, int], None] | None = None) -> StressOutcome:
    """Tests the current device until the time is up or a result is wrong.

    Args:
        seconds: Duration; everything is computed at least twice.
        seed: Seed of the numbers.
        tell: Called with the seconds and the repetitions so far.

    Raises:
        UnsupportedError: The device supports none of the work, or MindSpore's own test does not run.
    """
    outcome = StressOutcome()
    jobs = []
    for kind, work in ((kind, work) for kind, works in PIECES.items() for work in works):
        try:
            jobs += [_Job(kind, work, seed + number) for number in range(_TASKS)]
        except Exception as error:  # of any kind, as an operator or MindSpore's queue of them raises it
            outcome.absent[work.name] = _first_sentence(error)
    if not jobs:
        raise UnsupportedError(f"the device can't do the work: {next(iter(outcome.absent.values()))}.")
    _repeat(jobs, seconds, outcome, tell or (lambda _seconds, _count: None))
    if outcome.finding is None and ms.get_context("device_target") == "Ascend":
        outcome.vendor_code = stress_test()
    return outcome


def test_operators(report: Report) -> None:
    """Runs each known-answer test twice."""
    for work in (work for works in PIECES.values() for work in works):
        report.check("MindSpore's operators", work.name, _try, work)


def _try(work: Work) -> None:
    given = operands_of(np.random.default_rng(7).normal(0, 0.1, 997), 1)
    operands = [given[each] for each in work.operands]
    tensors = [Tensor(each) for each in operands]
    both = [try_bare(work.name, lambda: work.compute(*tensors).asnumpy()) for _ in range(2)]
    wrong = work.fault(both[0], both[1], operands)
    expect(not wrong, wrong)


def _repeat(jobs: list[_Job], seconds: float, outcome: StressOutcome, tell: Callable[[float, int], None]) -> None:
    began, repetition = time.monotonic(), 0
    while repetition < _LEAST or outcome.seconds < seconds:
        repetition += 1
        for job in jobs:
            outcome.repetitions[job.kind] += 1
            outcome.finding = job.repeat(repetition)
            outcome.seconds = time.monotonic() - began
            tell(min(outcome.seconds, seconds), sum(outcome.repetitions.values()))
            if outcome.finding is not None:
                return
            if repetition > _LEAST and outcome.seconds >= seconds:
                return


class _Job:
    """Known-answer test with one set of numbers."""

    def __init__(self, kind: str, work: Work, seed: int) -> None:
        self.kind, self._work, self._seed = kind, work, seed
        given = operands_of(np.random.default_rng(seed).normal(0, 0.1, 9973), seed, _SHAPE)
        operands = [given[each] for each in work.operands]
        self._tensors = [Tensor(each) for each in operands]
        self._answer, self._bound = work.expected(operands)
        self._first: np.ndarray | None = None
        if work.is_coarse(self._compute(), operands):
            raise UnsupportedError("it is computed less precisely here")

    def repeat(self, repetition: int) -> StressFinding | None:
        """Computes once more; returns a finding if the result is wrong, else None."""
        output = self._compute()
        wrong = is_off(output, self._answer, self._bound)
        if wrong.any():
            return self._finding(repetition, output, self._answer.astype(output.dtype), wrong, "the known answer")
        if self._first is None:
            self._first = output
        wrong = bits_of(output) != bits_of(self._first)
        if wrong.any():
            return self._finding(repetition, output, self._first, wrong, "the first repetition")
        return None

    def _compute(self) -> np.ndarray:
        found: np.ndarray = self._work.compute(*self._tensors).asnumpy().reshape(self._answer.shape)
        return found

    def _finding(
        self, repetition: int, output: np.ndarray, right: np.ndarray, wrong: np.ndarray, against: str
    ) -> StressFinding:
        at, total = tuple(np.argwhere(wrong)[0].tolist()), int(wrong.sum())
        expected, got = (f"{float(each[at])!r} (0x{int(bits_of(each)[at]):08X})" for each in (right, output))
        words = f"element {list(at)}: expected {expected}, got {got}; {total} of {output.size} elements differ from"
        return StressFinding(self.kind, self._work.name, self._seed, repetition, total, f"{words} {against}")


def _first_sentence(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__

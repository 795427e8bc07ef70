"""Runs known-answer tests for a time: those that a training's device does between steps."""

import functools
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import mindspore as ms

from asd.config import Config
from asd.diagnosis.selftest import ABSENT, OK, WRONG, Finding
from asd.errors import ConfigError, UnsupportedError
from asd.event import Event
from asd.operators.rerun.pieces import PIECES, blocks
from asd.operators.rerun.vendor import STRESS_CODES, stress_test
from asd.operators.rerun.work import DeviceUnderTest, Sizes, Test
from asd.operators.selftest.outcome import Absent, Report, expect
from asd.origin import Origin
from asd.verdict import Level

_CHIP, _PROCESSOR = Sizes(4089, 4096, 1024, 128), Sizes(507, 512, 128, 12)
_VENDOR_FOUND = 2  # a code of MindSpore's own test
_AREA = "known answers"
_LEAST = 2  # repetitions of each, however short the time is


class StressFinding(NamedTuple):
    """First wrong result of a stress test: kind of the work, its test, when from 1 on, how much is wrong and where."""

    workload: str
    output: str
    repetition: int
    wrong: int
    words: str

    def sentence(self) -> str:
        """Returns the finding as one sentence, without a full stop."""
        return f"{self.workload}, {self.output}, repetition {self.repetition}, {self.words}"


@dataclass
class StressOutcome:
    """Outcome of a stress test: how often each kind was repeated, and the tests that this device lacks, and why."""

    repetitions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PIECES, 0))
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # without `stress_test`
    finding: StressFinding | None = None
    vendor_code: int | None = None  # result of MindSpore's own test, one of `STRESS_CODES`, where it ran

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
            told = STRESS_CODES.get(self.vendor_code, "returned an undocumented code")
            done += f"; MindSpore's own stress test {told} (code {self.vendor_code})"
        return f"{device} made no error in {self.seconds:.1f} s: {done}."

    def event(self, config: Config, device: str) -> Event:
        """Returns the event for the fault handler; each test has its own event."""
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
        why = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise ConfigError("--device", device, f"MindSpore has none here ({why})") from error
    if target != "CPU":
        ms.set_deterministic(True)
    return f"{target}:{number}"


def stress(seconds: float, tell: Callable[[float, int], None] | None = None) -> StressOutcome:
    """Tests the current device until the time is up or a result is wrong.

    Args:
        seconds: Duration; everything is computed at least twice.
        tell: Called with the seconds and the repetitions so far.
    """
    outcome, device, on_ascend = StressOutcome(), _device(), ms.get_context("device_target") == "Ascend"
    _repeat(device, seconds, outcome, tell or (lambda _seconds, _count: None))
    outcome.absent = device.absent
    if not any(outcome.repetitions.values()):
        raise UnsupportedError(f"the device supports none of the tests: {next(iter(outcome.absent.values()))}.")
    if outcome.finding is None and on_ascend:
        outcome.vendor_code = stress_test()
    return outcome


def _repeat(
    device: DeviceUnderTest, seconds: float, outcome: StressOutcome, tell: Callable[[float, int], None]
) -> None:
    began, repetition = time.monotonic(), 0
    while repetition < _LEAST or 0 < outcome.seconds < seconds:
        repetition += 1
        for kind, test in ((kind, test) for kind, tests in PIECES.items() for test in tests):
            findings = device.test([test], repetition)
            if device.lacks(test):
                continue
            outcome.repetitions[kind] += 1
            outcome.seconds = time.monotonic() - began
            tell(min(outcome.seconds, seconds), sum(outcome.repetitions.values()))
            for name, wrong, words in findings:
                outcome.finding = StressFinding(kind, name, repetition, wrong, words)
                return
            if repetition > _LEAST and outcome.seconds >= seconds:
                return


def _device() -> DeviceUnderTest:
    return DeviceUnderTest(_CHIP if ms.get_context("device_target") == "Ascend" else _PROCESSOR, blocks())


def test_operators(report: Report) -> None:
    """Runs each known-answer test."""
    device = _device()
    for test in (test for tests in PIECES.values() for test in tests):
        report.check("MindSpore's operators", test.name, functools.partial(_try, device), test)


def _try(device: DeviceUnderTest, test: Test) -> None:
    findings = device.test([test], 1)
    if device.lacks(test):
        raise Absent(next(why for name, why in device.absent.items() if name in (test.name, test.group)))
    expect(not findings, "".join(each.words for each in findings))

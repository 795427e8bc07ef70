"""The vendor's own tools on Ascend: its check of products during a step, and its test of a suspected device."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import mindspore as ms

from asd.errors import UnsupportedError
from asd.judge.protections import Off
from asd.operators.gate.step_record import Part, StepRecord
from asd.rundir.manifest import Health

STRESS_CODES = {0: "found nothing", 1: "could not be started", 2: "found a hardware failure"}
"""Codes that `mindspore.tools.stress_detect` returns, as documented by MindSpore."""
_BAD = 2
_SWITCH = "MS_SDC_DETECT_ENABLE"
"""MindSpore's own: read once in a process, and without it `sdc_detect_start` is a warning and does nothing."""
_HOUR, _DAY = 3600.0, 86400.0
"""Least seconds between two tests, on suspicion (the vendor's minimum) and without (the vendor's advice)."""


def _tool(name: str) -> Any:
    return getattr(getattr(ms, "tools", None), name)


def stress_test() -> int:
    """Runs MindSpore's stress test on the current Ascend device, for a time that MindSpore chooses.

    Returns:
        One of `STRESS_CODES`.

    Raises:
        UnsupportedError: MindSpore cannot run it here.
    """
    try:
        return int(_tool("stress_detect")("aic"))
    except (AttributeError, RuntimeError) as error:
        why = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise UnsupportedError(f"MindSpore's own stress test does not run: {why}.") from error


class VendorTools(Part):
    """Vendor's tools of one `StepMonitor`; unused until `watch` is called, and on devices without them.

    Args:
        health: Receives the findings.

    Attributes:
        is_on: Whether the tools are used.
        products: Context in which the device checks its products; `nullcontext` where the tools are not used.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self.is_on = self._runs = self._found = self._saved = False
        self._tested = -_DAY
        self.products: Callable[[], AbstractContextManager[None]] = nullcontext

    def watch(self) -> None:
        """Starts to use the tools, if the device has them and MindSpore's switch is set."""
        why = "" if ms.get_context("device_target") == "Ascend" else "on Ascend only"
        if not why and os.getenv(_SWITCH) != "1":  # noqa: TID251 - a switch of MindSpore's
            why = f"{_SWITCH} is not 1"
        self.is_on, self.products = not why, nullcontext if why else self._check_inside
        words = "products of some steps, the device after an anomaly or a save"
        self.monitor.protections.has(vendor=Off(why) if why else words)

    def start(self) -> None:
        """Starts the device's check of its products."""
        if self.is_on and not self._runs:
            self._runs = self._call("sdc_detect_start") is not False

    def stop(self) -> None:
        """Stops the check of products, and notes whether a product was wrong."""
        if self._runs:
            self._runs = False
            self._call("sdc_detect_stop")
            self._found = self._found or self._call("get_sdc_detect_result") is True

    @contextmanager
    def _check_inside(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()

    def saved(self) -> None:
        """Notes a saved checkpoint: the device is tested after the next step, if its last test is a day old."""
        self._saved = True

    def end_step(self, step: StepRecord) -> None:
        """Adds a first-level event of the device if a product was wrong, or the test that is due fails."""
        self.stop()
        found, self._found = self._found, False
        if found:
            reason = "MindSpore's sdc_detect reported a wrong product of this device"
            self.accuse(step, self._health, rule="vendor", where="sdc_detect", reason=reason, wrong=1)
        is_suspected, is_saved, self._saved = step.refused or step.fatal is not None, self._saved, False
        since = time.monotonic() - self._tested
        if not self.is_on or not ((is_suspected and since >= _HOUR) or (is_saved and since >= _DAY)):
            return
        self._tested = time.monotonic()
        if self._call("stress_detect", "aic") == _BAD:
            reason = "MindSpore's stress_detect reported a hardware failure"
            self.accuse(step, self._health, rule="vendor", where="stress_detect", reason=reason, wrong=1)
            step.events.append(self.monitor.publish(replace(step.events[-1], kind="stress")))  # takes the device out

    def _call(self, name: str, *args: Any) -> Any:
        """Calls a tool and returns its result; False if it failed, which ends the use of all tools."""
        try:
            return _tool(name)(*args)
        except Exception as error:  # of any kind: a tool of the vendor must not end a training
            self.is_on = False
            self.monitor.has(vendor=Off(f"{name} failed: {error!r:.200}"))
            return False

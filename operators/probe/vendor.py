"""The vendor's own tools, on Ascend: its check of products while a step runs, and its test of a suspected device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import mindspore as ms

from asd.errors import UnsupportedError
from asd.operators.gate.step_record import Part, StepRecord
from asd.rundir.manifest import Health

STRESS_CODES = {0: "found nothing", 1: "could not be started", 2: "found a hardware failure"}
"""What `mindspore.tools.stress_detect` returns, as its document says."""
_BAD = 2
_SWITCH = "MS_SDC_DETECT_ENABLE"
"""MindSpore's own: read once in a process, and without it `sdc_detect_start` is a warning and does nothing."""
_HOUR, _DAY = 3600.0, 86400.0
"""From one test to the next on suspicion, and without one: what the vendor allows, and what it advises."""


def _tool(name: str) -> Any:
    return getattr(getattr(ms, "tools", None), name)


def stress_test() -> int:
    """Tests the Ascend device that is set by MindSpore's own test, for a time that MindSpore chooses.

    Returns:
        One of `STRESS_CODES`.

    Raises:
        UnsupportedError: MindSpore does not do it here.
    """
    try:
        return int(_tool("stress_detect")("aic"))
    except (AttributeError, RuntimeError) as error:
        why = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise UnsupportedError(f"MindSpore's own stress test does not run: {why}.") from error


class VendorTools(Part):
    """Those of one `StepMonitor`; until `watch` is called, and where the device has none, nothing is done.

    Args:
        health: What is found is added to it.

    Attributes:
        is_on: Whether they are used.
        products: Has the device check its products inside; no more than `nullcontext` where they are not used.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self.is_on = self._runs = self._found = self._saved = False
        self._tested = -_DAY
        self.products: Callable[[], AbstractContextManager[None]] = nullcontext

    def watch(self) -> None:
        """Uses them from now on, if this is a device that has them and MindSpore's switch is set."""
        why = "" if ms.get_context("device_target") == "Ascend" else "absent"
        if not why and os.getenv(_SWITCH) != "1":  # noqa: TID251 - a switch of MindSpore's
            why = f"off: {_SWITCH} is not 1"
        self.is_on, self.products = not why, nullcontext if why else self._check_inside
        self.monitor.protections.has(vendor=why or "products of some steps, the device after an anomaly or a save")

    def start(self) -> None:
        """Has the device check its products from now on."""
        if self.is_on and not self._runs:
            self._runs = self._call("sdc_detect_start") is not False

    def stop(self) -> None:
        """Ends that, and notes whether a product was wrong."""
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
        """Says that a checkpoint was saved: behind the next step the device is tested, if it was not for a day."""
        self._saved = True

    def end_step(self, step: StepRecord) -> None:
        """Adds a first-level event of the device if a product was wrong, or the test that is due fails."""
        self.stop()
        found, self._found = self._found, False
        if found:
            reason = "a product of this device was wrong, says MindSpore's sdc_detect"
            self.accuse(step, self._health, rule="vendor", where="sdc_detect", reason=reason, wrong=1)
        is_suspected, is_saved, self._saved = step.refused or step.fatal is not None, self._saved, False
        since = time.monotonic() - self._tested
        if not self.is_on or not ((is_suspected and since >= _HOUR) or (is_saved and since >= _DAY)):
            return
        self._tested = time.monotonic()
        if self._call("stress_detect", "aic") == _BAD:
            reason = "MindSpore's stress_detect says that the hardware fails"
            self.accuse(step, self._health, rule="vendor", where="stress_detect", reason=reason, wrong=1)
            step.events.append(self.monitor.publish(replace(step.events[-1], kind="stress")))  # takes the device out

    def _call(self, name: str, *args: Any) -> Any:
        """What a tool returns; False after one that failed, which ends the use of all."""
        try:
            return _tool(name)(*args)
        except Exception as error:  # of any kind: a tool of the vendor must not end a training
            self.is_on = False
            self.monitor.protections.has(vendor=f"off: {name} failed: {error!r:.200}")
            self.monitor.status.protections = self.monitor.protections.to_json()
            return False

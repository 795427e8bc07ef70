"""Measures the time that the host spends on detection in each step, and compares it with the budget."""

from __future__ import annotations

from collections import deque
from statistics import median

from asd.operators.gate.step_record import Part
from asd.operators.monitor.state_checks import StateChecks
from asd.operators.sensors.state_reading import EVERY

_EVERY = 16  # steps between two reports
_RECENT = 33
"""Number of steps in the median, which ignores a compilation, an evaluation or a saved checkpoint."""


class Spending(Part):
    """Time budget of one `StepMonitor`; its measurements never change which checks run."""

    def __init__(self, share: float, state: StateChecks) -> None:
        self._share, self._state = share, state
        self._steps: deque[float] = deque(maxlen=_RECENT)
        self._judging: deque[float] = deque(maxlen=_RECENT)
        self._count = 0

    def note(self, *, step_seconds: float, detection_seconds: float) -> None:
        """Adds the seconds of a step, and of the detection between it and the next step."""
        self._steps.append(step_seconds)
        self._judging.append(max(0.0, detection_seconds - self._state.seconds_in_step))
        self._count += 1
        if self._count % _EVERY == 0 and (step := median(self._steps)) > 0:
            self._tell(median(self._judging) / step, self._state.price / EVERY / step)

    def _tell(self, judging: float, state: float) -> None:
        monitor, share = self.monitor, 1 / EVERY
        told = f"reading and judging {100 * judging:.2g} %"
        if state > 0:
            told += f", weights and moments {100 * state:.2g} % ({share:.0%} a step)"
        more = " and more" if judging + state > self._share else ""
        told += "; what runs within a step is not in it"
        monitor.protections.has(budget=f"{100 * self._share:.3g} % of a step{more}: {told}")
        monitor.status.protections = monitor.protections.to_json()

"""Measures what detection takes of each step, and says whether that is within the budget."""

from __future__ import annotations

from asd.operators.gate.part import Part
from asd.operators.step.state_checks import StateChecks
from asd.rules.step.budget import PLACES, STATE, TimeBudget

__all__ = ["Spending"]

_STEPS = 16
"""From one time it is said to the next."""


class Spending(Part):
    """The budget of one `StepMonitor`.

    Args:
        share: Of the time of a step that detection may take.
        state: Reads weights and moments.
    """

    def __init__(self, share: float, state: StateChecks) -> None:
        self._budget = TimeBudget(share)
        self._state = state
        self._steps = 0

    def note(self, *, step_seconds: float, detection_seconds: float) -> None:
        """Takes the time of a step, and of detection in it."""
        self._budget.note(
            step_seconds=step_seconds, places_seconds=max(0.0, detection_seconds - self._state.seconds_in_step)
        )
        self._steps += 1
        if self._steps % _STEPS == 0:
            self._tell()

    def _tell(self) -> None:
        taken = self._budget.taken(state_seconds=self._state.price, every=self._state.every)
        monitor = self.monitor
        monitor.status.budget = {part: (found.cost, found.coverage) for part, found in taken.items()}
        words = {PLACES: "all places", STATE: "weights and moments"}
        told = (
            f"{words[part]} {100 * found.cost:.2g} %" + (f" ({found.coverage:.0%} a step)" if part == STATE else "")
            for part, found in taken.items()
        )
        more = " and more" if sum(found.cost for found in taken.values()) > self._budget.share else ""
        monitor.protections.has(budget=f"{100 * self._budget.share:.3g} % of a step{more}: {', '.join(told)}")
        monitor.status.protections = monitor.protections.to_json()

"""Measures what detection takes of each step, and has the parts that can look at less keep to the budget."""

from __future__ import annotations

from asd.operators.gate.part import Part
from asd.operators.step.state_checks import StateChecks
from asd.rules.step.budget import PLACES, STATE, Allocation, TimeBudget

__all__ = ["Spending"]

_STEPS = 16
"""From one sharing out to the next."""


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
            self._share_out()

    def _share_out(self) -> None:
        grants = self._budget.share_out(self._state.price)
        if STATE in grants:
            seconds = grants[STATE].coverage * self._state.price
            grants[STATE] = grants[STATE]._replace(coverage=self._state.pace(seconds))
        self._tell(grants)

    def _tell(self, grants: dict[str, Allocation]) -> None:
        monitor = self.monitor
        monitor.status.budget = {part: (grant.cost, grant.coverage) for part, grant in grants.items()}
        words = {PLACES: "all places", STATE: "weights and moments"}
        told = (
            f"{words[part]} {100 * grant.cost:.2g} %" + (f" ({grant.coverage:.0%} a step)" if part == STATE else "")
            for part, grant in grants.items()
        )
        monitor.protections.has(budget=f"{100 * self._budget.share:.3g} % of a step: {', '.join(told)}")
        monitor.status.protections = monitor.protections.to_json()

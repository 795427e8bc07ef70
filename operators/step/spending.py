"""Measures what detection takes of each step, and has the parts that can look at less keep to the budget."""

from __future__ import annotations

from asd.operators.attach.recompute_schedule import RecomputeSchedule
from asd.operators.gate.part import Part
from asd.operators.step.state_checks import StateChecks
from asd.rules.step.budget import PLACES, Allocation, TimeBudget, turns_of

__all__ = ["Spending"]

_STEPS = 16
"""From one sharing out to the next."""


class Spending(Part):
    """That of one `StepMonitor`.

    Args:
        share: Of the time of a step that detection may take.
        state: Reads weights and moments, some blocks in a step.
        checksums: Checks results, each in one step of so many.
    """

    def __init__(self, share: float, state: StateChecks, checksums: RecomputeSchedule) -> None:
        self._budget = TimeBudget(share)
        self._state, self._checksums = state, checksums
        self._steps = 0
        self._recomputing = self._looked_at = 0.0

    def note(self, *, step_seconds: float, detection_seconds: float) -> float:
        """Takes the time of a step, and of detection in it without the checks of results; returns what these took."""
        recomputing = self.table.seconds_recomputing()
        self._recomputing += recomputing
        self._looked_at += self._checksums.coverage
        self._budget.note(
            step_seconds=step_seconds, places_seconds=max(0.0, detection_seconds - self._state.seconds_in_step)
        )
        self._steps += 1
        if self._steps % _STEPS == 0:
            self._share_out()
        return recomputing

    def _share_out(self) -> None:
        all_results = self._recomputing / self._looked_at if self._looked_at else 0.0
        if self._looked_at >= 1:  # each result once, at least
            self._recomputing = self._looked_at = 0.0
        grants = self._budget.share_out({"state": self._state.price, "checksum": all_results})
        if "state" in grants:
            seconds = grants["state"].coverage * self._state.price
            grants["state"] = grants["state"]._replace(coverage=self._state.pace(seconds))
        if "checksum" in grants:
            self._checksums.every = turns_of(grants["checksum"].coverage, self._checksums.every)
        self._tell(grants)

    def _tell(self, grants: dict[str, Allocation]) -> None:
        monitor = self.monitor
        monitor.status.budget = {part: (grant.cost, grant.coverage) for part, grant in grants.items()}
        words = {
            PLACES: "all places",
            "state": "weights and moments",
            "checksum": f"results, each in one step of {self._checksums.every}",
        }
        told = (
            f"{words[part]} {100 * grant.cost:.2g} %" + (f" ({grant.coverage:.0%} a step)" if part == "state" else "")
            for part, grant in grants.items()
        )
        monitor.protections.has(budget=f"{100 * self._budget.share:.3g} % of a step: {', '.join(told)}")
        monitor.status.protections = monitor.protections.to_json()

"""Refuses an update made of gradients that accumulate over several steps, if any of these steps broke a limit."""

from collections.abc import Callable

from asd.operators.gate.step_record import Part, StepRecord


class Accumulation(Part):
    """Accumulation of one `StepMonitor`, where steps are judged but not every step makes an update."""

    def __init__(self, put_back: Callable[[], str], write_limits: Callable[[], None]) -> None:
        self._put_back, self._write_limits = put_back, write_limits
        self._flagged = 0  # the first step since the last update with a first-level anomaly
        self._each_updates: bool | None = None

    def settle(self, step: StepRecord) -> None:
        """Notes why an update was refused, if an earlier step is the reason, and restores the accumulated sums."""
        if step.refused and self._flagged:
            obstacle = self._put_back()
            sums = f"is not put back: {obstacle}" if obstacle else "was put back to where it began"
            step.withheld = f"it holds the gradients of step {self._flagged}, which broke a limit; their sum {sums}"

    def note(self, step: StepRecord) -> None:
        """Withholds the next update, if this step broke a limit and made no update."""
        gate, withheld = self.gate, self.gate.withholds
        if gate.updates:
            self._flagged, gate.withholds = 0, False
        elif step.fatal is not None and self._flagged == 0 and gate.guards and not self._each_updates:
            # If every healthy step makes an update, a step without one was skipped by the training itself.
            self._flagged, gate.withholds = step.number, True
        if not step.events and step.readings:
            self._each_updates = gate.updates > 0 and self._each_updates is not False
        if gate.withholds is not withheld:
            self._write_limits()

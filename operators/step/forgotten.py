"""Says so when updates are made and nobody calls `step`: then nothing is judged, and a gate alone protects little."""

from __future__ import annotations

from asd.operators.gate.part import Part
from asd.operators.gate.problems import Problems
from asd.operators.table import unread
from asd.operators.table.slots import table

__all__ = ["Forgotten"]

_CALL_IT = "call `step` of the StepMonitor after each step"
_AFTER_REFUSAL = f"an update was refused, and the training went on without a verdict: {_CALL_IT}"
_NEVER = f"nothing is judged, for updates are made and `step` was never called: {_CALL_IT}"
_MANY = 20
"""Updates without a single `step` that are no accident."""


class Forgotten(Part):
    """That of one `StepMonitor`, where somebody else has to call `step`.

    Args:
        problems: Each is told once.

    Attributes:
        is_called: Whether `step` was called.
    """

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._watches = self.is_called = False

    def watch(self) -> None:
        """Looks out from now on, until `stop`."""
        self._watches, self.is_called = True, False
        unread.listen(self)
        self.gate.listener = self

    def stop(self) -> None:
        """Says that nobody has to call `step` any more."""
        if self._watches:
            self._watches = False
            self.gate.listener = None

    def look(self, *, ended: bool = False) -> None:
        """Reports what was not judged."""
        if not self._watches or table() is not self.table or self.table.replaying:  # no slots of another
            return
        gate = self.gate
        seen = self.table.unread(gate)
        refused = self.table.refused(gate) - gate.refused
        if refused and (seen.overrun or ended):
            self._tell(_AFTER_REFUSAL)
        elif not self.is_called and (seen.updates >= _MANY or (ended and self.table.read(gate.sites, gate))):
            self._tell(_NEVER)

    def _tell(self, reason: str) -> None:
        if self._problems.once(reason):
            self.monitor.write_status()

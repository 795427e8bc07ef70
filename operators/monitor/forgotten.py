"""Reports updates without a call of `step`: then nothing is judged, and a gate alone protects little."""

from asd.operators.gate.slots import table
from asd.operators.gate.step_record import Part, Problems
from asd.operators.private.boundary import at_exit, shielded

_CALL_IT = "call `step` of the StepMonitor after each step"
_AFTER_REFUSAL = f"an update was refused, and the training continued without a verdict: {_CALL_IT}"
_NEVER = f"nothing is judged: updates are made, but `step` was never called: {_CALL_IT}"


class Forgotten(Part):
    """Watch for missing calls of `step` on one `StepMonitor`, where the user must call it.

    Attributes:
        is_called: Whether `step` was called.
    """

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._watches = self.is_called = False

    def watch(self) -> None:
        """Starts the watch, until `stop`: it looks after some unjudged updates, and when the process ends."""
        self._watches, self.is_called = True, False
        self.gate.listener = lambda: self.look(ended=False)
        at_exit(self.look)

    def stop(self) -> None:
        """Ends the watch."""
        if self._watches:
            self._watches = False
            self.gate.listener = None

    @shielded
    def look(self, *, ended: bool = True) -> None:
        """Reports updates that were not judged.

        Args:
            ended: Whether the training is over, so that nothing will be judged later.
        """
        if not self._watches or table() is not self.table or self.table.replaying:  # no slots of another
            return
        gate = self.gate
        if self.table.refused(gate) > gate.refused:
            self._report(_AFTER_REFUSAL)
        elif not self.is_called and (not ended or self.table.read(gate.sites, gate)):
            self.monitor.status.unjudged = True
            self._report(_NEVER)

    def _report(self, reason: str) -> None:
        if self._problems.once(reason):
            self.monitor.write_status()

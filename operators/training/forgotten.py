"""Says so when updates are made and nobody calls `step`: then nothing is judged, and a gate alone protects little."""

from __future__ import annotations

from asd.monitor import Monitor
from asd.operators import unread
from asd.operators.slots import table
from asd.operators.training.judging import Judging
from asd.operators.training.problems import Problems

__all__ = ["Forgotten"]

_CALL_IT = "call `step` of the StepMonitor after each step"
_AFTER_REFUSAL = f"an update was refused, and the training went on without a verdict: {_CALL_IT}"
_NEVER = f"nothing is judged, for updates are made and `step` was never called: {_CALL_IT}"
_MANY = 20
"""Updates without a single `step` that are no accident."""


class Forgotten:
    """That of one `StepMonitor`, where somebody else has to call `step`.

    Args:
        judging: Has the checkpoints.
        problems: Each is told once.
    """

    def __init__(self, judging: Judging, problems: Problems) -> None:
        self._judging, self._problems = judging, problems
        self._monitor: Monitor | None = None
        self._is_called = False
        self._table: object = None

    def watch(self, monitor: Monitor) -> None:
        """Looks out from now on, until `stop`."""
        self._monitor, self._is_called, self._table = monitor, False, table()
        unread.listen(self)
        self._be_held(self)

    def stop(self) -> None:
        """Says that nobody has to call `step` any more."""
        self._monitor = None
        self._be_held(None)

    def _be_held(self, by_gate: Forgotten | None) -> None:
        if self._judging.gate is not None:
            self._judging.gate.listener = by_gate

    def look(self, *, ended: bool = False) -> None:
        """Reports what was not judged; may be called between any two instructions of the main thread."""
        monitor = self._monitor
        if monitor is None or table() is not self._table or table().replaying:  # the slots of another are not its own
            return
        gate = self._judging.gate
        seen = table().unread(gate)
        refused = self._judging.refused_unread()
        if refused and (seen.overrun or ended):
            self._tell(monitor, _AFTER_REFUSAL)
        elif not self._is_called and (seen.updates >= _MANY or (ended and table().read(self._judging.sites, gate))):
            self._tell(monitor, _NEVER)

    def called(self) -> None:
        """Says that `step` was called."""
        self._is_called = True

    def _tell(self, monitor: Monitor, reason: str) -> None:
        if self._problems.once(monitor, reason):
            monitor.write_status()

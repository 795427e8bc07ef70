"""What the detector itself could not do: told once, counted every time."""

from __future__ import annotations

from asd.operators.gate.part import Part
from asd.operators.private.boundary import listen

__all__ = ["Problems"]


class Problems(Part):
    """Problems of one `StepMonitor` that may come back in every step."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        listen(self)

    def once(self, reason: str) -> bool:
        """Reports a problem; the second time and later it is only counted.

        Returns:
            Whether it was the first time.
        """
        if reason in self._told:
            if hasattr(self, "monitor"):
                self.monitor.status.problems += 1
            return False
        self._told.add(reason)
        if hasattr(self, "monitor"):  # else no training has begun
            self.monitor.problem(reason)
        return True

"""A progress bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["Bar", "Progress"]

_WIDTH = 30


class Bar:
    """Shows how far some work is.

    Args:
        label: Stands before the bar.
        total: Where it ends, in any unit.
        stream: Where it goes; a bar if that is a terminal, else nothing but the end.
    """

    def __init__(self, label: str, total: float, stream: TextIO | None = None) -> None:
        self._label, self._total, self._stream = label, total, stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._shown = 0.0

    def show(self, done: float, text: str) -> None:
        """Tells that the work is at `done`; `text` stands behind the bar."""
        now = time.monotonic()
        if self._is_terminal and (now - self._shown > 0.1 or done == self._total):
            self._shown = now
            filled = int(_WIDTH * done // max(1, self._total))
            bar = "#" * filled + "." * (_WIDTH - filled)
            self._stream.write(f"\r  {self._label:<34} [{bar}] {text} ")
            self._stream.flush()

    def end(self, text: str) -> None:
        """Ends the line with `text` and the time it took."""
        line = f"  {self._label:<34} {text}, {time.monotonic() - self._began:.1f} s"
        self._stream.write(("\r\x1b[K" if self._is_terminal else "") + line + "\n")
        self._stream.flush()


class Progress:
    """Shows how far a training is.

    Args:
        label: As in `Bar`.
        total: The last step.
        stream: As in `Bar`.
    """

    def __init__(self, label: str, total: int, stream: TextIO | None = None) -> None:
        self._bar = Bar(label, total, stream)
        self._total = total
        self._last = (0, 0.0)

    def __call__(self, step: int, loss: float) -> None:
        """Tells of one more step."""
        self._last = (step, loss)
        self._bar.show(step, f"{step}/{self._total} loss {loss:.4f}")

    def close(self) -> None:
        """Ends the line."""
        step, loss = self._last
        self._bar.end(f"{step}/{self._total} steps, loss {loss:.4f}")

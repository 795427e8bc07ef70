"""A progress bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["Progress"]

_WIDTH = 30


class Progress:
    """Shows how far a training is.

    Args:
        label: Stands before the bar.
        total: The last step.
        stream: Where it goes; a bar if that is a terminal, else nothing but the end.
    """

    def __init__(self, label: str, total: int, stream: TextIO = sys.stderr) -> None:
        self._label, self._total, self._stream = label, total, stream
        self._is_terminal = stream.isatty()
        self._began = time.monotonic()
        self._shown = 0.0
        self._last = (0, 0.0)

    def __call__(self, step: int, loss: float) -> None:
        """Tells of one more step."""
        self._last = (step, loss)
        now = time.monotonic()
        if self._is_terminal and (now - self._shown > 0.1 or step == self._total):
            self._shown = now
            done = _WIDTH * step // max(1, self._total)
            bar = "#" * done + "." * (_WIDTH - done)
            self._stream.write(f"\r  {self._label:<34} [{bar}] {step}/{self._total} loss {loss:.4f} ")
            self._stream.flush()

    def close(self) -> None:
        """Ends the line."""
        step, loss = self._last
        end = f"  {self._label:<34} {step}/{self._total} steps, loss {loss:.4f}, {time.monotonic() - self._began:.1f} s"
        self._stream.write(("\r\x1b[K" if self._is_terminal else "") + end + "\n")
        self._stream.flush()

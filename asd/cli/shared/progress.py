"""Output of long work: a progress bar on a terminal, one line at the end in a log, and lines that are news."""

import os
import sys
import time
from typing import TextIO

_WIDTH = 30


class Bar:
    """Progress bar for some work.

    Args:
        label: Text before the bar.
        total: End of the work, in any unit.
        silent: Whether nothing is shown at all.
    """

    def __init__(self, label: str, total: float, *, silent: bool = False) -> None:
        self._label, self._total, self._stream = label, total, sys.stderr
        self._silent, self._is_terminal = silent, self._stream.isatty()
        self._began = time.monotonic()
        self._shown, self._text = 0.0, ""

    def show(self, done: float, text: str) -> None:
        """Shows that the work is at `done`; `text` comes after the bar."""
        now, self._text = time.monotonic(), text
        if self._is_terminal and not self._silent and (now - self._shown > 0.1 or done == self._total):
            self._shown = now
            filled = int(_WIDTH * done // max(1, self._total))
            bar = "#" * filled + "." * (_WIDTH - filled)
            self._stream.write(f"\r  {self._label:<34} [{bar}] {text} ")
            self._stream.flush()

    def end(self, text: str = "") -> None:
        """Ends the line with `text`, or the last text shown, and the duration."""
        if not self._silent:
            line = f"  {self._label:<34} {text or self._text}, {time.monotonic() - self._began:.1f} s"
            self._stream.write(("\r\x1b[K" if self._is_terminal else "") + line + "\n")
            self._stream.flush()


def write_line(stream: TextIO, line: str) -> None:
    """Writes a line without a buffer; a full disk loses it and ends no command, a reader that has gone raises."""
    try:
        os.write(stream.fileno(), f"{line}\n".encode(stream.encoding, "backslashreplace"))
    except OSError as error:  # a buffer would keep the line, and fail again at the end
        if isinstance(error, BrokenPipeError):
            raise

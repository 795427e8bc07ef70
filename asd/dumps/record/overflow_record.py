"""The record of overflows: JSON lines in a file that ends in `.pkl`, as ptdbg_ascend writes it. Never a pickle."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from asd.dumps.record.ptdbg_lines import lines_of

__all__ = ["OverflowRecord"]


class OverflowRecord:
    """One file a detected overflow.

    Args:
        folder: Where the files go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = time.strftime("%Y%m%d%H%M%S")

    def write(self, count: int, name: str, data: dict[str, Any]) -> Path:
        """Writes the record of overflow number `count`.

        Args:
            count: From 1.
            name: Of the entry that overflowed.
            data: Its parts as in `dump.json`.

        Raises:
            OSError: The file can't be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"Overflow_info_{self._started}_{count}.pkl"
        lines = [json.dumps(line) for line, _ in lines_of(name, data)]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

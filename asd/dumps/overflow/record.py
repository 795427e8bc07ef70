"""The record of overflows: JSON lines in a file that ends in `.pkl`, as ptdbg_ascend writes it. Never a pickle."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

__all__ = ["OverflowRecord", "old_name"]


def old_name(name: str) -> str:
    """The older style of an entry's name.

    >>> old_name("Functional.linear.145.backward")
    'Functional_linear_145_backward'
    """
    return name.replace(".", "_")


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
        lines = [json.dumps(line) for line in _lines(old_name(name), data)]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path


def _lines(name: str, data: dict[str, Any]) -> list[list[Any]]:
    found = []
    slots = {"input_args": "input", "input": "input", "input_kwargs": "input", "output": "output"}
    if "_parameters_grad_" in name:
        slots = {part: part for part in data}  # a part a parameter
    for part, slot in slots.items():
        tensors = list(_tensors(data.get(part)))
        alone = slot != "input" and len(tensors) == 1
        for index, value in enumerate(tensors):
            place = f"{name}_{slot}" if alone else f"{name}_{slot}.{index}"
            summary = [value.get("Max"), value.get("Min"), value.get("Mean")]
            found.append([place, 1, [], f"mindspore.{value['dtype'].lower()}", value["shape"], summary])
    return found


def _tensors(value: Any) -> Any:
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list):
        for item in value:
            yield from _tensors(item)

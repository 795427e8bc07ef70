"""Record of overflows: JSON lines in a file that ends in `.pkl`, as ptdbg_ascend writes it. Never a pickle."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SLOTS = {"input_args": "input", "input": "input", "input_kwargs": "input", "output": "output"}


class OverflowRecord:
    """Records of overflows, one file each.

    Args:
        folder: Folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = time.strftime("%Y%m%d%H%M%S")

    def write(self, count: int, name: str, data: dict[str, Any]) -> Path:
        """Writes the record of overflow number `count`.

        Args:
            count: Number of the overflow, from 1.
            name: Name of the entry that overflowed.
            data: Parts of the entry as in `dump.json`.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"Overflow_info_{self._started}_{count}.pkl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in _lines(name, data)), encoding="utf-8")
        return path


def _lines(name: str, data: dict[str, Any]) -> Iterator[list[Any]]:
    """Yields a line for each tensor of one entry: name in the older style, 1, [], type, shape, and [Max, Min, Mean]."""
    # For gradients of parameters each parameter is a part, under its name.
    slots = {part: part for part in data} if ".parameters_grad." in name else _SLOTS
    values: dict[str, list[dict[str, Any]]] = {}
    for part, slot in slots.items():
        values.setdefault(slot, []).extend(_tensors(data.get(part)))
    older = name.replace(".", "_")
    for slot, found in values.items():
        alone = slot != "input" and len(found) == 1
        for index, value in enumerate(found):
            place = f"{older}_{slot}" if alone else f"{older}_{slot}.{index}"
            numbers = [value.get("Max"), value.get("Min"), value.get("Mean")]
            yield [place, 1, [], f"mindspore.{value['dtype'].lower()}", value["shape"], numbers]


def _tensors(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)

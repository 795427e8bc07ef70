"""The older `.pkl` of dumps: lines of text, one JSON array a line. It is read as text and never unpickled.

A line is `["Functional_linear_0_forward_input.0", 1, [], "torch.float32", [3, 2], [max, min, mean]]`; stacks and other
kinds of lines are passed over.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from asd.dumps.formats.json_file import open_text
from asd.dumps.formats.slots import STATES, Entry, Slot, printable
from asd.errors import StateError

__all__ = ["read_lines"]

_NAME = re.compile(r"(?P<call>.+_\d+_(?:forward|backward))_(?P<suffix>(?P<state>input|output)(?:\.\d+)*)")
_LONGEST_LINE = 1 << 20


def read_lines(path: Path) -> dict[str, Entry]:
    """Every call of the file, in its order.

    Raises:
        StateError: The file is a real pickle, binary, or holds a line of another form.
        OSError: It can't be read.
    """
    found: dict[str, list[Slot]] = {}
    try:
        with open_text(path) as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if line.strip():
                    _read_line(line, found, f"{path}, line {number}")
    except StateError as error:
        if "UTF-8" in str(error):
            raise StateError(
                f"{path} is binary; a dump's .pkl holds lines of text, and a pickle isn't opened."
            ) from None
        raise
    if not found:
        raise StateError(f"{path} holds no tensor of any operator.")
    return {
        name: Entry(name, tuple(sorted(slots, key=lambda slot: STATES.index(slot.state))))
        for name, slots in found.items()
    }


def _read_line(line: str, found: dict[str, list[Slot]], where: str) -> None:
    try:
        values: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise StateError(f"{where}: a JSON array is needed, found {line[:40]!r}.") from None
    if not isinstance(values, list) or not values or not isinstance(values[0], str):
        raise StateError(f"{where}: a JSON array that begins with a name is needed.")
    match = _NAME.fullmatch(printable(values[0]))
    if match is None or len(values) < 6:
        return
    dtype, shape, statistics = values[3:6]
    if (
        not isinstance(shape, list)
        or not all(type(size) is int and size >= 0 for size in shape)
        or not isinstance(statistics, list)
        or not all(value is None or isinstance(value, (int, float)) for value in statistics)
    ):
        raise StateError(f"{where}: the shape or the statistics of {values[0][:80]!r} are not lists of numbers.")
    maximum, minimum, mean, norm, *_ = [*statistics, None, None, None, None]
    scalar = None if str(dtype).startswith(("torch.", "mindspore.")) else str(maximum)
    data_name = f"{values[0]}.npy" if values[1] and scalar is None else None
    slot = Slot(
        match["suffix"],
        match["state"],
        printable(str(dtype)),
        tuple(shape),
        (maximum, minimum, mean, norm),
        None,
        data_name,
        scalar=scalar,
    )
    found.setdefault(match["call"], []).append(slot)

"""The first call of a dump that made Inf, NaN or an overflowed value out of sound inputs, rank by rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asd.evidence.dump_folder import Dump, read_dump, stack_of
from asd.evidence.slots import Entry, Slot

__all__ = ["Anomaly", "find_anomaly", "is_anomalous"]

_HALF_MARKS = {65504.0, 65500.0, 51200.0, 38400.0}
"""Magnitudes that an overflow leaves in float16: its maximum, and what the vector units saturate to."""
_GIVEN = ("input", "parameters")


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Where a rank's numbers went wrong.

    Attributes:
        name: Name of the call.
        entry: What it took and gave.
        made_here: Whether its inputs are sound, so that the call itself made it.
        parents: The modules it ran in, from the innermost out.
        stack: Its call stack; empty when the dump has none.
    """

    name: str
    entry: Entry
    made_here: bool
    parents: tuple[str, ...]
    stack: str

    def to_json(self) -> dict[str, Any]:
        """The keys that other tools write; values that JSON has no word for are texts."""
        return {
            "op_name": self.name,
            "data_info": {
                slot.suffix: {
                    "dtype": slot.dtype, "shape": list(slot.shape),
                    **dict(zip(("Max", "Min", "Mean", "Norm"), map(_plain, slot.values), strict=True)),
                }
                for slot in self.entry.slots
            },
            "construct_info": list(self.parents),
            "stack_info": self.stack.split("\n") if self.stack else [],
        }  # fmt: skip


def is_anomalous(slot: Slot) -> bool:
    """Whether a tensor holds Inf or NaN, or in float16 a value that an overflow leaves."""
    numbers = [value for value in slot.values if isinstance(value, float)]
    if any(not math.isfinite(value) for value in numbers[:2]):
        return True
    # The mean and the norm of sound elements may overflow by themselves; NaN among the elements reaches the mean.
    if any(math.isnan(value) for value in numbers):
        return True
    is_half = slot.dtype.lower().endswith("float16") and not slot.dtype.lower().endswith("bfloat16")
    return is_half and any(abs(value) in _HALF_MARKS for value in numbers[:2])


def find_anomaly(path: Path) -> Anomaly | None:
    """The first call that made an anomaly; else the first that was given one; None when all is sound.

    Args:
        path: The dump.json of one rank.

    Raises:
        StateError: The dump can't be read.
        OSError: A file can't be read.
    """
    dump = read_dump(path)
    given: Entry | None = None
    for entry in dump.entries.values():
        bad = {slot.state in _GIVEN for slot in entry.slots if is_anomalous(slot)}
        if bad == {False}:
            return _anomaly(dump, entry, made_here=True)
        if bad and given is None:
            given = entry
    return None if given is None else _anomaly(dump, given, made_here=False)


def _anomaly(dump: Dump, entry: Entry, *, made_here: bool) -> Anomaly:
    stack = dump.path.with_name("stack.json")
    parents: list[str] = []
    parent = dump.parents.get(entry.name)
    while parent is not None and parent not in parents:
        parents.append(parent)
        parent = dump.parents.get(parent)
    stacks = stack_of(stack) if stack.is_file() else {}
    forward = entry.name.replace(".backward", ".forward")
    return Anomaly(entry.name, entry, made_here, tuple(parents), stacks.get(entry.name, stacks.get(forward, "")))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

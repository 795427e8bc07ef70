"""The first call of a dump that made Inf, NaN or an overflowed value out of sound inputs, or whose weight held it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asd.dumps.formats.dump_folder import Dump, read_dump, stack_of
from asd.dumps.formats.slots import Entry, Slot

__all__ = ["Anomaly", "find_anomaly"]

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
        weight: The slot of the weight that held it already; empty when it came of none.
    """

    name: str
    entry: Entry
    made_here: bool
    parents: tuple[str, ...]
    stack: str
    weight: str = ""

    def to_json(self) -> dict[str, Any]:
        """The keys that other tools write; values that JSON has no word for are texts."""
        return {
            "op_name": self.name,
            "data_info": {
                slot.suffix: {
                    "dtype": slot.dtype,
                    "shape": list(slot.shape),
                    **dict(zip(("Max", "Min", "Mean", "Norm"), map(_plain, slot.values), strict=True)),
                }
                for slot in self.entry.slots
            },
            "construct_info": list(self.parents),
            "stack_info": self.stack.split("\n") if self.stack else [],
        }


def _is_anomalous(slot: Slot) -> bool:
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
    """The first call that made an anomaly, or whose weight held it; else the first that was given one.

    A module that only hands on what a call in it gave has made nothing.

    Args:
        path: The dump.json of one rank.

    Returns:
        None when all is sound.

    Raises:
        StateError: The dump can't be read.
        OSError: A file can't be read.
    """
    dump = read_dump(path)
    weights = {_print_of(slot) for entry in dump.entries.values() for slot in _bad(entry, ("parameters",))}
    given: Entry | None = None
    around: set[str] = set()  # modules in which something is bad already
    for entry in dump.entries.values():
        taken, made = _bad(entry, _GIVEN), _bad(entry, ("output", "parameters_grad"))
        if made and taken and all(_print_of(slot) in weights for slot in taken):
            return _anomaly(dump, entry, weight=taken[0].suffix)
        known = given is None or any(slot.state in _GIVEN for slot in entry.slots)
        if made and not taken and known and entry.name not in around:
            return _anomaly(dump, entry, made_here=True)
        if (made or taken) and given is None:
            given = entry
        if made:
            around.update(_modules(dump, entry.name))
    return None if given is None else _anomaly(dump, given)


def _bad(entry: Entry, states: tuple[str, ...]) -> list[Slot]:
    return [slot for slot in entry.slots if slot.state in states and _is_anomalous(slot)]


def _print_of(slot: Slot) -> object:
    return slot.shape, slot.md5 or str(slot.values)  # NaN equals nothing, its name does


def _modules(dump: Dump, name: str) -> list[str]:
    """The modules around a call, from the innermost out."""
    found: list[str] = []
    parent = dump.parents.get(name)
    while parent is not None and parent not in found:
        found.append(parent)
        parent = dump.parents.get(parent)
    return found


def _anomaly(dump: Dump, entry: Entry, *, made_here: bool = False, weight: str = "") -> Anomaly:
    stack = dump.path.with_name("stack.json")
    stacks = stack_of(stack) if stack.is_file() else {}
    forward = entry.name.replace(".backward", ".forward")
    frames = stacks.get(entry.name, stacks.get(forward, ""))
    return Anomaly(entry.name, entry, made_here, tuple(_modules(dump, entry.name)), frames, weight)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

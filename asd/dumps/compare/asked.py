"""Comparison of what two runs were asked for, call by call: settings, arguments, types, shapes, order and structure."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from asd.dumps.compare.comparison import CallRows, ComparedRow, same_value
from asd.dumps.compare.matching import fingerprint
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Slot, split_name

ENVIRONMENT = ("MindSpore", "device", "chip", "CANN", "deterministic", "threads", "precision")
"""Facts that must be known and equal for the bits of two sound runs to be equal."""
CODE = "construct"  # the setting that is a check sum of a module's code


class Asked(NamedTuple):
    """One thing that the runs were asked for differently."""

    kind: str  # `attribute`, `argument`, `type`, `shape`, `order` or `structure`
    row: ComparedRow | None  # the row that it is about, or None
    reason: str  # both sides, in words


def asked_of(call: CallRows, tested: Dump, trusted: Dump, *, moved: bool) -> Iterator[Asked]:
    """Returns what was asked of a call differently, of two dumps of one framework.

    Args:
        call: It, on both sides or on one.
        tested: The run under test.
        trusted: The trusted run.
        moved: Whether it stands in another order in the trusted run.
    """
    ours, theirs = call.tested, call.trusted
    if ours is None or theirs is None:
        if call.rows and tested.tool == trusted.tool:
            yield Asked("structure", None, f"only the {'trusted run' if ours is None else 'run under test'} has it")
        return
    if ours.settings is not None and theirs.settings is not None and ours.settings != theirs.settings:
        yield Asked("attribute", None, differing(ours.settings, theirs.settings))
    around = [split_name(dump.parents.get(each.name) or "")[0] for dump, each in ((tested, ours), (trusted, theirs))]
    if around[0] != around[1] and tested.tool == trusted.tool and tested.parents and trusted.parents:
        yield Asked("structure", None, f"it is called in {around[0] or 'no module'} and in {around[1] or 'no module'}")
    if moved:
        yield Asked("order", None, f"it is {theirs.name} of the trusted run, where other calls are before or after it")
    yield from _asked_of_rows(call)


def _asked_of_rows(call: CallRows) -> Iterator[Asked]:
    inputs = [row for row in call.rows if row.state == "input"]
    ours, theirs = (
        [slot and (slot.scalar or fingerprint(slot)) for slot in side]
        for side in ([row.tested for row in inputs], [row.trusted for row in inputs])
    )
    if ours != theirs and None not in ours and sorted(map(repr, ours)) == sorted(map(repr, theirs)):
        yield Asked("order", inputs[0], "its inputs are the same in another order")
    for row in call.rows:
        one, other = row.tested, row.trusted
        if one is None or other is None:
            if row.state == "input":
                yield Asked("argument", row, f"only the {'trusted run' if one is None else 'run under test'} gives it")
        elif not same_value(one, other):
            yield Asked("argument", row, f"it is {_words(one)} and {_words(other)}")
        elif row.types_differ:
            yield Asked("type", row, f"the types are {one.dtype} and {other.dtype}")
        elif one.shape != other.shape:
            yield Asked("shape", row, f"the shapes are {list(one.shape)} and {list(other.shape)}")


def _words(slot: Slot) -> str:
    return slot.scalar if slot.scalar is not None else f"a tensor {list(slot.shape)}"


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Returns the first settings that differ, in words; empty where all are equal."""
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    told = [
        "the code of its construct differs" if key == CODE else f"{key} is {ours.get(key)} and {theirs.get(key)}"
        for key in sorted(keys, key=lambda key: key == CODE)
    ]
    return "; ".join(told[:3])

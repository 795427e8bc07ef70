"""Calls of one name that two modes number differently.

A compiled graph makes independent calls of one module in any order, forward and backward, and so the first of one mode
may be the second of the other. What a call takes and gives tells which it is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Entry, Slot, split_name

__all__ = ["renumbered"]

_NEAR = 5e-3
"""Statistics of a tensor in both modes differ by less, of its size."""
_ROUNDED = 1e-5
_MOST = 256
"""Calls of one name that are looked at: each is held against each."""


def renumbered(tested: Dump, trusted: Dump, calls: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The pairs of calls, where one dump is of a graph and the other is not, and single slots that belong elsewhere.

    Each call is paired with that of its name which takes and gives the same, then with one which gives the same, then
    with one which takes the same. One that is like its own number keeps it, and so does what is like no other. A graph
    may count what goes into a module in another order than what comes out, so inputs are paired by themselves too.

    Args:
        tested: The run under test.
        trusted: The trusted run.
        calls: The pairs by name.
    """
    found, slots = dict(calls), dict[str, str]()
    if (tested.mode == "graph") is (trusted.mode == "graph"):
        return found, slots
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, partner in calls.items():
        base, direction, count = split_name(name)
        if name == partner and count and direction in ("forward", "backward"):
            groups[base, direction].append(name)
    for names in groups.values():
        if 1 < len(names) <= _MOST and any(_apart(tested.entries[n], trusted.entries[n]) > _ROUNDED for n in names):
            pairs = _pairs(tested, trusted, names, (("input", "output"), ("output",), ("input",)))
            found.update(pairs)
            for mine, its in _pairs(tested, trusted, names, (("input",),)).items():
                entries = tested.entries[mine], trusted.entries[its]
                if its != pairs[mine] and _apart(*entries, ("input",)) < _NEAR:
                    slots.update(_inputs(*entries))
    return found, slots


def _inputs(mine: Entry, its: Entry) -> dict[str, str]:
    theirs = {slot.suffix: slot for slot in its.slots if slot.state == "input"}
    return {
        mine.row_name(slot): its.row_name(theirs[slot.suffix])
        for slot in mine.slots
        if slot.state == "input" and slot.suffix in theirs
    }


def _pairs(tested: Dump, trusted: Dump, names: list[str], ways: tuple[tuple[str, ...], ...]) -> dict[str, str]:
    ours, theirs = list(names), list(names)
    found: dict[str, str] = {}
    for states in ways:
        near = []
        for mine in ours:
            for its in theirs:
                apart = _apart(tested.entries[mine], trusted.entries[its], states)
                if apart < _NEAR:
                    near.append((max(apart, _ROUNDED), mine != its, mine, its))
        for _, _, mine, its in sorted(near, key=lambda each: each[:2]):
            if mine in ours and its in theirs:
                found[mine] = its
                ours.remove(mine)
                theirs.remove(its)
    kept = [name for name in ours if name in theirs]
    found.update(zip(kept, kept, strict=True))
    left = ([name for name in side if name not in kept] for side in (ours, theirs))
    found.update(zip(*left, strict=True))
    return found


def _apart(mine: Entry, its: Entry, states: tuple[str, ...] = ("input", "output")) -> float:
    """The most that the tensors which both have are apart, of their size; infinite where there are none."""
    theirs = {slot.suffix: slot for slot in its.slots if slot.scalar is None}
    pairs = [(slot, theirs[slot.suffix]) for slot in mine.slots
             if slot.state in states and slot.scalar is None and slot.suffix in theirs]  # fmt: skip
    if {slot.state for slot, _ in pairs} != set(states):
        return math.inf
    return max(_distance(*pair) for pair in pairs)


def _distance(mine: Slot, its: Slot) -> float:
    if mine.shape != its.shape:
        return math.inf
    if mine.md5 is not None and mine.md5 == its.md5:
        return 0.0
    if None in (*mine.values, *its.values):
        return math.inf
    size = max(1e-30, *(abs(float(value)) for value in its.values[:2]))
    apart = max(abs(float(n) - float(b)) / size for n, b in zip(mine.values[:3], its.values[:3], strict=True))
    norm = abs(float(mine.values[3]) - float(its.values[3])) / max(1e-30, abs(float(its.values[3])))
    found = max(apart, norm)
    return found if math.isfinite(found) else math.inf

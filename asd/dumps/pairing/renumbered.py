"""Calls of one name that two modes number differently.

A compiled graph makes independent calls of one module in any order, forward and backward, and so the first of one mode
may be the second of the other. What a call takes and gives tells which it is: its statistics, and where there are
tensors the beginnings of these, for statistics are the same in whatever order a tensor has its elements.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.npy_file import NpyFile
from asd.dumps.formats.slots import Entry, Slot, split_name
from asd.dumps.pairing.rounding import difference_of, scale_of
from asd.errors import StateError

__all__ = ["renumbered"]

Apart = Callable[[Slot, Slot], float]
_NEAR = 5e-3
"""Statistics of a tensor in both modes differ by less, of its size."""
_ROUNDED = 1e-5
_REORDERED = 0.1
_BEGINNING = 1024  # elements
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
    apart = _tensors_apart(tested, trusted)
    if (tested.mode == "graph") is (trusted.mode == "graph"):
        return found, slots
    groups: dict[tuple[str, str], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, dump in enumerate((tested, trusted)):
        for name in dump.entries:
            base, direction, count = split_name(name)
            if count and direction in ("forward", "backward"):
                groups[base, direction][side].append(name)
    for ours, theirs in groups.values():
        if not 1 < max(len(ours), len(theirs)) <= _MOST or not ours or not theirs:
            continue
        entries = [tested.entries[name] for name in ours], [trusted.entries[name] for name in theirs]
        if any(
            mine.name not in calls or _apart(mine, trusted.entries[mine.name], apart) > _ROUNDED for mine in entries[0]
        ):
            pairs = _pairs(*entries, apart)
            found.update({mine: its.name for mine, its in pairs.items()})
            slots.update(_inputs([(tested.entries[mine], its) for mine, its in pairs.items()], apart))
    return found, slots


def _inputs(pairs: list[tuple[Entry, Entry]], apart: Apart) -> dict[str, str]:
    """Inputs that differ from those of the other call, and are like those of a call whose own are elsewhere too."""
    found: dict[str, str] = {}
    for suffix in {slot.suffix: None for mine, _ in pairs for slot in mine.slots if slot.state == "input"}:
        ours: list[tuple[str, Slot]] = []
        theirs: list[tuple[str, Slot]] = []
        for mine, its in pairs:
            own, other = _slot(mine, suffix), _slot(its, suffix)
            if other is not None and (own is None or apart(own, other) >= _NEAR):
                theirs.append((its.row_name(other), other))
                ours += [] if own is None else [(mine.row_name(own), own)]
        near = sorted((apart(own, other), name, partner) for name, own in ours for partner, other in theirs)
        for far, name, partner in near:
            if far < _NEAR and name not in found and partner not in found.values():
                found[name] = partner
    return found


def _slot(entry: Entry, suffix: str) -> Slot | None:
    return next((each for each in entry.slots if each.suffix == suffix and each.scalar is None), None)


def _tensors_apart(tested: Dump, trusted: Dump) -> Apart:
    """See `_distance`; where elements can be read, those in another order are as far apart as the tensor is large."""
    known: dict[tuple[bool, str], np.ndarray[Any, Any] | None] = {}

    def beginning(slot: Slot, *, ours: bool) -> np.ndarray[Any, Any] | None:
        if slot.data_name is None:
            return None
        key = (ours, slot.data_name)
        if key not in known:
            known[key] = _beginning((tested if ours else trusted).data_dir / slot.data_name)
        return known[key]

    def apart(mine: Slot, its: Slot) -> float:
        found = _distance(mine, its)
        n, b = (None, None) if found >= _NEAR else (beginning(mine, ours=True), beginning(its, ours=False))
        if n is None or b is None or n.shape != b.shape:
            return found
        with np.errstate(all="ignore"):
            whole = (its.values[3] or 0.0) * math.sqrt(b.size / math.prod(its.shape)) if b.size else 0.0
            order = float(np.linalg.norm(n - b) / max(1e-30, float(np.linalg.norm(b)), whole))
        return max(found, order) if order > _REORDERED else found  # rounding moves no element so far

    return apart


def _beginning(path: Path) -> np.ndarray[Any, Any] | None:
    try:
        with NpyFile(path) as file:
            piece = next(iter(file.pieces(_BEGINNING)), None)
            return None if piece is None or file.is_bfloat16 else np.array(piece, np.float64)
    except (OSError, StateError, TypeError, ValueError):
        return None  # whoever compares it says why


def _pairs(ours: list[Entry], theirs: list[Entry], tensors_apart: Apart) -> dict[str, Entry]:
    left, free = list(ours), list(theirs)
    found: dict[str, Entry] = {}
    for states in (("input", "output"), ("output",), ("input",)):
        near = [
            (max(apart, _ROUNDED), mine.name != its.name, mine, its)
            for mine in left for its in free if (apart := _apart(mine, its, tensors_apart, states)) < _NEAR
        ]  # fmt: skip
        for _, _, mine, its in sorted(near, key=lambda each: each[:2]):
            if mine in left and its in free:
                found[mine.name] = its
                left.remove(mine)
                free.remove(its)
    by_name = {its.name: its for its in free}
    found.update({mine.name: by_name.pop(mine.name) for mine in left if mine.name in by_name})
    others = [mine for mine in left if mine.name not in found]
    found.update({mine.name: its for mine, its in zip(others, by_name.values(), strict=False)})
    return found


def _apart(mine: Entry, its: Entry, apart: Apart, states: tuple[str, ...] = ("input", "output")) -> float:
    """The most that the tensors which both have are apart, of their size; infinite where there are none."""
    theirs = {slot.suffix: slot for slot in its.slots if slot.scalar is None}
    pairs = [(slot, theirs[slot.suffix]) for slot in mine.slots
             if slot.state in states and slot.scalar is None and slot.suffix in theirs]  # fmt: skip
    if {slot.state for slot, _ in pairs} != set(states):
        return math.inf
    return max(apart(*pair) for pair in pairs)


def _distance(mine: Slot, its: Slot) -> float:
    if mine.shape != its.shape:
        return math.inf
    if mine.md5 is not None and mine.md5 == its.md5:
        return 0.0
    found = difference_of(mine, its, scale_of([its]))
    return math.inf if found is None else found

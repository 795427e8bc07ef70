"""Two dumps side by side: every call of the run under test with its partner, row by row, in the order of execution."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

from asd.dumps.compare.rows import ComparedRow, compare_slots, judge, mode_of
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Entry, Slot
from asd.dumps.pairing.matching import Matching
from asd.errors import StateError

__all__ = ["CallRows", "compare_dumps"]

_Job = tuple[Entry | None, Entry | None]
_READERS = max(2, min(8, os.cpu_count() or 1))
_AHEAD = 8
"""Calls per reader that may be under way before their turn; keeps memory constant."""


class CallRows(NamedTuple):
    """One call of an operator on both sides.

    Attributes:
        name: Its name in the run under test; in the trusted run when only that has it.
        rows: Its slots.
    """

    name: str
    rows: list[ComparedRow]


def compare_dumps(tested: Dump, trusted: Dump, matching: Matching) -> Iterator[CallRows]:
    """Compares two dumps.

    Args:
        tested: The run under test.
        trusted: The trusted run.
        matching: Which calls belong together.

    Raises:
        StateError: Nothing can be compared; the sentence says why.
    """
    mode = mode_of(tested, trusted)
    if not matching.calls:
        raise StateError(
            f"{tested.path} and {trusted.path} have no call in common, such as {next(iter(tested.entries))!r} and "
            f"{next(iter(trusted.entries))!r}; a layer mapping may tell which belong together."
        )
    used = set(matching.calls.values())
    jobs = chain(
        ((entry, _partner(entry, trusted, matching)) for entry in tested.entries.values()),
        ((None, entry) for name, entry in trusted.entries.items() if name not in used),
    )

    def one(job: _Job) -> CallRows:
        ours, theirs = job
        rows = []
        for mine, other in _pairs(ours, theirs, matching):
            row = compare_slots((tested, trusted), (ours, theirs), (mine, other), mode)
            row.verdict = judge(row, mode)
            rows.append(row)
        return CallRows((ours or theirs).name, rows)  # type: ignore[union-attr]

    return map(one, jobs) if mode != "tensor" else _in_parallel(one, jobs)


def _in_parallel(one: Callable[[_Job], CallRows], jobs: Iterable[_Job]) -> Iterator[CallRows]:
    """The results in the order of the jobs; a few are under way ahead of their turn."""
    with ThreadPoolExecutor(_READERS, "asd-compare") as pool:
        under_way: deque[Future[CallRows]] = deque()
        try:
            for job in jobs:
                under_way.append(pool.submit(one, job))
                if len(under_way) > _READERS * _AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def _partner(entry: Entry, trusted: Dump, matching: Matching) -> Entry | None:
    name = matching.calls.get(entry.name)
    return None if name is None else trusted.entries[name]


def _pairs(ours: Entry | None, theirs: Entry | None, matching: Matching) -> list[tuple[Slot | None, Slot | None]]:
    if ours is None:
        return [(None, slot) for slot in theirs.slots] if theirs is not None else []
    pairs: list[tuple[Slot | None, Slot | None]] = [*matching.partners(ours, theirs)]
    if theirs is not None:
        taken = {id(slot) for _, slot in pairs}
        pairs += [(None, slot) for slot in theirs.slots if id(slot) not in taken]
    return pairs

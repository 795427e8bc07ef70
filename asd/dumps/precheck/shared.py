"""Calls of a compiled graph whose inputs and outputs may be those of different calls.

A graph runs what does not depend on one another in any order. Of a module that is called several times the first input
that was seen may so belong to the second output.
"""

from __future__ import annotations

from collections import Counter

from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import split_name

__all__ = ["calls_of_shared_modules"]


def calls_of_shared_modules(dump: Dump) -> frozenset[str]:
    """The forward calls in a dump of a graph that are of a module that ran more than once, or inside one.

    A dump of calls alone does not say which module they are in: of it there are none.
    """
    if dump.mode != "graph":
        return frozenset()
    forward = [name for name in dump.entries if split_name(name)[1] == "forward"]
    counts = Counter(split_name(name)[0] for name in forward if name.startswith("Cell."))

    def is_shared(name: str | None) -> bool:
        seen: set[str] = set()
        while name is not None and name not in seen:
            seen.add(name)
            if counts[split_name(name)[0]] > 1:
                return True
            name = dump.parents.get(name)
        return False

    return frozenset(name for name in forward if is_shared(name))
